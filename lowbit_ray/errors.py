"""Every error this package raises on purpose, by whose fault it is.

    LowbitError
    ├── SubmissionError        the participant's: final, never retried
    │   ├── CheckpointError    the bytes cannot be read as a checkpoint
    │   │   └── AbsentError    nothing can be fetched from the address: no verdict on a checkpoint
    │   ├── ContractError      the contract is broken: the submission scores 0
    │   └── EngineRulesError   the engine rules are broken: the submission scores 0
    ├── EngineError            the participant's server: final
    │   ├── EngineStartError   it did not come up, or died
    │   └── EngineAnswerError  it answered wrongly, too little, too late or not at all
    └── InfraError             ours: retried on a fresh pod, costs the participant nothing
        ├── ConfigError        an organizer's file (rules, task, settings) is wrong: not retried
        ├── FetchError         the hub or the store did not deliver
        ├── LedgerError        the ledger could not be read or written
        └── PodError           a lost node
            ├── NoPodError         none within the task's time: nothing failed, ask again later
            └── DirtyDeviceError   a device that is not clean: its node goes into quarantine

A message says what is wrong, where (file, field or address), what was found, what was expected and what
to do. The same parts are attributes, so a page or a program need not parse prose.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = [
    "AbsentError",
    "CheckpointError",
    "ConfigError",
    "ContractError",
    "DirtyDeviceError",
    "EngineAnswerError",
    "EngineError",
    "EngineRulesError",
    "EngineStartError",
    "FetchError",
    "InfraError",
    "LedgerError",
    "LowbitError",
    "NoPodError",
    "PodError",
    "SubmissionError",
]


class LowbitError(Exception):
    """Base of all errors raised on purpose; survives pickling with all of its parts."""

    retryable = False
    """Whether the same work may succeed when it is tried again on another pod."""

    def __init__(
        self,
        summary: str,
        *,
        where: str = "",
        found: object = None,
        expected: object = None,
        remedy: str = "",
    ) -> None:
        self.summary = summary
        """One sentence without its full stop."""
        self.where = where
        """File, field or address; `config.json: rope_theta`."""
        self.found = found
        self.expected = expected
        self.remedy = remedy
        """What the reader should do, in the imperative."""
        super().__init__(summary)

    def __str__(self) -> str:
        parts = [f"{self.where}: {self.summary}" if self.where else self.summary]
        if self.found is not None:
            parts.append(f"found {self.found}")
        if self.expected is not None:
            parts.append(f"expected {self.expected}")
        text = ", ".join(parts)
        return f"{text}. {self.remedy}" if self.remedy else text

    def __reduce__(self) -> tuple[Callable[..., LowbitError], tuple[type[LowbitError], dict[str, Any]]]:
        fields = {
            "summary": self.summary,
            "where": self.where,
            "found": self.found,
            "expected": self.expected,
            "remedy": self.remedy,
        }
        return _rebuild, (type(self), fields)


def _rebuild(kind: type[LowbitError], fields: dict[str, Any]) -> LowbitError:
    return kind(**fields)


class SubmissionError(LowbitError):
    """The participant's fault, final."""


class CheckpointError(SubmissionError):
    """The bytes on disk cannot be read as a checkpoint."""


class AbsentError(CheckpointError):
    """Nothing can be fetched from the address: it does not exist, is private, or holds nothing."""


class ContractError(SubmissionError):
    """The checkpoint contract is broken: the submission scores 0."""


class EngineRulesError(SubmissionError):
    """The engine rules are broken (memory, offload, audit): the submission scores 0."""


class EngineError(LowbitError):
    """The server's fault, final when the server is the participant's."""


class EngineStartError(EngineError):
    """The server did not come up in time, or died."""


class EngineAnswerError(EngineError):
    """The server answered wrongly, too little, too late or not at all."""


class InfraError(LowbitError):
    """Our own fault: retried, and free of charge."""

    retryable = True


class ConfigError(InfraError):
    """An organizer's file or setting is wrong; trying again does not help."""

    retryable = False


class FetchError(InfraError):
    """The hub or the store did not deliver the bytes."""


class LedgerError(InfraError):
    """The ledger could not be read or written."""


class PodError(InfraError):
    """No pod, or a lost node."""


class NoPodError(PodError):
    """There was no pod within the task's time; nothing has failed."""


class DirtyDeviceError(PodError):
    """Somebody holds a device, or left memory on it: its node goes into quarantine."""

"""One thing that a check found: where, what, what was expected, and whether it breaks the contract."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from lowbit_ray.errors import LowbitError

__all__ = ["Finding", "finding_of", "show"]


class Finding(BaseModel):
    """One line of a verdict."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    file: str
    """Name inside the checkpoint, empty when it is about no single file."""
    field: str
    """Configuration field or tensor, empty when it is about the whole file."""
    found: str
    """What is there, shortened."""
    expected: str
    """What should be there."""
    summary: str
    """One sentence without its full stop."""
    rule: str
    """The contract's rule it is about: `configuration`, `source_weights`, `foreign_tensors`, `companions`,
    `precision`, `files` or `execution`."""
    breaks: bool = True
    """Whether the contract is broken by it; otherwise it is only worth knowing."""
    remedy: str = ""
    """What the participant should do, in the imperative, where it does not follow from the rest."""

    @property
    def where(self) -> str:
        """File and field."""
        return ": ".join(part for part in (self.file, self.field) if part)

    def __str__(self) -> str:
        parts = [f"{self.where}: {self.summary}" if self.where else self.summary]
        parts += [f"found {self.found}"] if self.found else []
        parts += [f"expected {self.expected}"] if self.expected else []
        return ", ".join(parts) + (f". {self.remedy}" if self.remedy else "")


def show(value: object, limit: int = 80) -> str:
    """A value from a stranger's file, short and safe to print on a terminal or a page."""
    text = value if isinstance(value, str) and value.isprintable() else ascii(value)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def finding_of(error: LowbitError, rule: str) -> Finding:
    """An error about one field as a finding that breaks the contract."""
    file, _, field = error.where.partition(": ")
    found, expected = ("" if value is None else show(value) for value in (error.found, error.expected))
    return Finding(file=file, field=field, found=found, expected=expected, summary=error.summary, rule=rule)

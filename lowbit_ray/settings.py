"""The only reader of the environment: every `LOWBIT_…` variable, with its default.

Organizers set them on the nodes; nothing else in the package looks at `os.environ` for its own settings.
"""

from __future__ import annotations

import secrets
import shlex
import sys
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import Field, IPvAnyNetwork, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from lowbit_ray.rules import DEFAULT_RULES
from lowbit_ray.tasks import TASKS

__all__ = ["Settings", "settings"]

DATA = Path.home() / ".local" / "share" / "lowbit"
VLLM = f"{shlex.quote(sys.executable)} -m vllm.entrypoints.openai.api_server"
LM_EVAL = f"{shlex.quote(sys.executable)} -m lm_eval"


class Settings(BaseSettings):
    """Where things live and how engines are started."""

    model_config = SettingsConfigDict(env_prefix="LOWBIT_", frozen=True, extra="ignore")

    ledger: str = str(DATA / "ledger")
    """A folder, or `s3://bucket/prefix`."""
    cache: Path = DATA / "cache"
    """Sealed checkpoints, compile caches, logs, and the secret seed where `secret` is not set. All but the seed may be
    deleted whenever nothing runs: with another seed prompts are others, and the anchors are asked again."""
    kept: int = Field(default=8, ge=0)
    """Of the submissions that are over, so many keep their folder in the cache; fewer where the disk is full."""
    rules: Path = DEFAULT_RULES
    tasks: Path = TASKS
    """Folder of the task files."""
    secret: str | None = Field(default=None, repr=False)
    """Hex seed of all hidden prompts; by default one is made, and kept in the cache as `secret`."""
    vllm_command: str = VLLM
    """What starts vLLM's OpenAI server; another virtual environment's Python, for instance."""
    lm_eval_command: str = LM_EVAL
    """What starts lm-evaluation-harness, for tasks with such a domain; another environment's Python, for instance."""
    log: Literal["text", "json"] = "text"
    """What jobs write to standard error: lines for people, or JSON with submission and stage."""
    url: str = "http://127.0.0.1:8000"
    """The service that the participant's commands talk to."""
    buckets: tuple[str, ...] = ()
    """S3 buckets that participants may submit from, as a JSON list."""
    proxies: tuple[IPvAnyNetwork, ...] = ()
    """Networks of proxies before the service, as a JSON list: there `X-Forwarded-For` says who asks."""
    token_file: Path = DATA / "token"

    @field_validator("cache", "rules", "tasks", "token_file")
    @classmethod
    def _absolute(cls, path: Path) -> Path:
        """Engines run in folders of their own, where a relative path would be another one."""
        return path.expanduser().resolve()

    @field_validator("ledger")
    @classmethod
    def _absolute_folder(cls, address: str) -> str:
        return address if "://" in address else str(Path(address).expanduser().resolve())

    def vllm(self) -> tuple[str, ...]:
        """`vllm_command` as a list of arguments."""
        return tuple(shlex.split(self.vllm_command))

    def lm_eval(self) -> tuple[str, ...]:
        """`lm_eval_command` as a list of arguments."""
        return tuple(shlex.split(self.lm_eval_command))

    def secret_bytes(self) -> bytes:
        """The secret seed; made once with mode 0600 where none is set."""
        if self.secret is not None:
            return bytes.fromhex(self.secret)
        path = self.cache / "secret"
        if not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_suffix(f".{secrets.token_hex(4)}")
            part.touch(mode=0o600)
            part.write_text(secrets.token_hex(32))
            try:
                path.hardlink_to(part)  # the first of two that start at once wins
            except FileExistsError:
                pass
            finally:
                part.unlink()
        return bytes.fromhex(path.read_text().strip())


@cache
def settings() -> Settings:
    """The settings of this process, read once."""
    return Settings()

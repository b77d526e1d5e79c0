"""How each vLLM release words its accounts, found in the sources of 0.25.1 to 0.33.

| release      | accounting line                               | KV pool line       | activation contains   |
|--------------|-----------------------------------------------|--------------------|-----------------------|
| 0.25, 0.26   | weight, activation, non-torch, graphs         | two lines, `GPU`   | activations           |
| 0.27         | consumed (weights + non-torch), activation,   | two lines, `GPU`   | activations + the     |
|              | graphs                                        |                    | graphs' *estimate*    |
| 0.28, 0.29   | as 0.27                                       | one line, `GPU`    | as 0.27               |
| 0.30 to 0.33 | as 0.27                                       | one line, device   | as 0.27               |

In 0.25 the accounting line is printed at DEBUG only. From 0.27 on the graphs stand in the line twice, once
as the estimate within the activation peak, once measured; `gpu.py` takes the estimate out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from lowbit_ray.errors import EngineError

__all__ = ["RELEASES", "Release", "release_of"]

NUMBER = re.compile(r"^v?(\d+)\.(\d+)\.(\d+)(?:[.+].*|(?:rc|post|a|b)\d+.*)?$")


@dataclass(frozen=True, slots=True)
class Release:
    """A range of releases that word their accounts alike."""

    first: tuple[int, int]
    last: tuple[int, int]
    itemized: bool
    """Weights and non-torch memory are apart in the accounting line, and the activations are only that."""
    any_device: bool
    """The KV line names the device, not always `GPU`."""


RELEASES = (
    Release((0, 25), (0, 26), itemized=True, any_device=False),
    Release((0, 27), (0, 29), itemized=False, any_device=False),
    Release((0, 30), (0, 33), itemized=False, any_device=True),
)


def release_of(version: str, aliases: Mapping[str, str]) -> tuple[str, Release]:
    """The release number of a printed version, and how it words its accounts.

    `aliases` maps development versions to releases (`rules.vllm.package` to `rules.vllm.release`). Raises
    EngineError on a release that nobody has read the sources of.
    """
    name = aliases.get(version, version).removeprefix("v")
    match = NUMBER.match(name)
    if match is not None:
        key = (int(match[1]), int(match[2]))
        for release in RELEASES:
            # 0.1.dev… is what a build from an untagged commit calls itself
            if release.first <= key <= release.last:
                return name, release
    raise EngineError(
        "the accounts of this vLLM release are not known",
        where="start-up log: Initializing a V1 LLM engine",
        found=version,
        expected=f"0.{RELEASES[0].first[1]} to 0.{RELEASES[-1].last[1]}",
        remedy="Use the rules' release, or add the release to lowbit_ray/engines/accounts/releases.py.",
    )

"""A ledger as one file, and back: for backups, and for moving from a folder to a bucket.

The file is a gzipped tar of objects under their keys. Exporting while others write is safe: every object in the
file is whole, and a submission without its last objects is one that is not finished yet.
"""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

from lowbit_ray.errors import ConfigError, LedgerError
from lowbit_ray.ledger import Ledger, check_key
from lowbit_ray.rules import _Frozen

__all__ = ["Imported", "export_ledger", "import_ledger"]

LAST = "accepted/"
"""Imported after all else: an index finds nothing there whose objects are still missing."""


class Imported(_Frozen):
    """What an import did."""

    created: int
    known: int
    """Objects that were there already, byte for byte."""
    conflicts: tuple[str, ...]
    """Keys that were there with other content, and stayed as they were."""


def export_ledger(ledger: Ledger, path: Path) -> int:
    """Writes every object into the file; how many. LedgerError or ConfigError leave no file behind."""
    part = path.with_name(f".{path.name}.part")
    count = 0
    try:
        with tarfile.open(part, "w:gz") as file:
            # listed first, so that nothing is accepted in the file whose submission is not in it
            for key in sorted(ledger.keys(""), key=lambda key: (not key.startswith(LAST), key)):
                entry = ledger.read(key)
                if entry is None:
                    continue  # removed since it was listed
                info = tarfile.TarInfo(key)
                info.size = len(entry.data)
                file.addfile(info, io.BytesIO(entry.data))
                count += 1
        part.replace(path)
    except OSError as error:
        raise ConfigError(f"the file cannot be written: {error.strerror}", where=str(path)) from None
    finally:
        part.unlink(missing_ok=True)
    return count


def import_ledger(ledger: Ledger, path: Path) -> Imported:
    """Creates every object of the file that the ledger does not have; nothing is replaced.

    Raises ConfigError where the file is no export; what was created until then stays, and importing again is safe.
    """
    created, known, conflicts, last = 0, 0, list[str](), list[tuple[str, bytes]]()
    try:
        with tarfile.open(path, "r:gz") as file:
            for info in file:
                check_key(info.name, str(path))
                member = file.extractfile(info) if info.isreg() else None
                if member is None:
                    raise ConfigError("not an export of a ledger", where=f"{path}: {info.name}")
                data = member.read()
                if info.name.startswith(LAST):
                    last.append((info.name, data))
                    continue
                outcome = _create(ledger, info.name, data)
                created, known = created + (outcome == "created"), known + (outcome == "known")
                conflicts += [info.name] if outcome == "conflict" else []
    except (tarfile.TarError, EOFError, OSError) as error:
        raise ConfigError(f"not an export of a ledger: {error}"[:300], where=str(path)) from None
    except LedgerError as error:
        if error.summary != "not a key":
            raise
        raise ConfigError("not an export of a ledger", where=str(path), found=error.found) from None
    for key, data in last:
        outcome = _create(ledger, key, data)
        created, known = created + (outcome == "created"), known + (outcome == "known")
    return Imported(created=created, known=known, conflicts=tuple(conflicts))


def _create(ledger: Ledger, key: str, data: bytes) -> str:
    if ledger.create(key, data):
        return "created"
    entry = ledger.read(key)
    return "known" if entry is not None and entry.data == data else "conflict"

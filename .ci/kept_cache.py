"""Caches that the gate keeps between runs, each an archive with the digest of its bytes in its name.

    kept_cache.py restore NAME FOLDER
    kept_cache.py keep NAME FOLDER

They only save time: without a home nothing is kept, a damaged archive is deleted, and what else fails is ignored.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tarfile
from pathlib import Path


def store() -> Path | None:
    """The folder of archives."""
    home = os.environ.get("XDG_CACHE_HOME") or (os.environ.get("HOME") and os.path.join(os.environ["HOME"], ".cache"))
    return Path(home, "candle-convert-gate") if home else None


def _named(archive: Path, name: str) -> str:
    with archive.open("rb") as file:
        return f"{name}.{hashlib.file_digest(file, 'sha256').hexdigest()}.tar"


def restore(archives: Path, name: str, folder: Path) -> None:
    """Unpack the archive of a cache, if there is one that is whole."""
    for archive in archives.glob(f"{name}.*.tar"):
        if archive.name != _named(archive, name):
            archive.unlink()
            continue
        try:
            with tarfile.open(archive) as file:
                file.extractall(folder, filter="data")
            return
        except (OSError, tarfile.TarError):
            shutil.rmtree(folder, ignore_errors=True)


def keep(archives: Path, name: str, folder: Path) -> None:
    """Replace the archive of a cache."""
    archives.mkdir(parents=True, exist_ok=True)
    new = archives / f".{name}.{os.getpid()}"
    try:
        with tarfile.open(new, "w", format=tarfile.PAX_FORMAT) as file:
            file.add(folder, ".")
        kept = archives / _named(new, name)
        new.replace(kept)
    finally:
        new.unlink(missing_ok=True)
    for other in archives.glob(f"{name}.*.tar"):
        if other != kept:
            other.unlink(missing_ok=True)


if __name__ == "__main__":
    action, name, folder = sys.argv[1:]
    archives = store()
    if archives is not None:
        try:
            {"restore": restore, "keep": keep}[action](archives, name, Path(folder))
        except OSError as error:
            print(f"{name}: {error}", file=sys.stderr)

"""Version of the package that a process runs: its release, and a digest of its sources."""

from __future__ import annotations

import os
from pathlib import Path

from ....runtime.base import __version__
from ....runtime.base.process_cache import process_cache
from ....runtime.base.sha256 import sha256

ROOT = Path(__file__).parents[3]
NOT_RUN = frozenset(("tests", "benchmarks", "docs", "examples", "build"))
"""Folders whose files no command runs."""


@process_cache()
def version() -> str:
    """The release and 8 digits of the digest of all sources, such as ``0.1.0+3f9a01c4``: two workers with the same one
    compute the same bytes."""
    digest = sha256()
    for folder, folders, files in os.walk(ROOT):
        folders[:] = sorted(name for name in folders if name.isidentifier() and name not in NOT_RUN)
        for name in sorted(files):
            if name.endswith(".py"):
                path = Path(folder, name)
                digest.update(f"{path.relative_to(ROOT).as_posix()}\0".encode() + path.read_bytes())
    return f"{__version__}+{digest.hexdigest()[:8]}"

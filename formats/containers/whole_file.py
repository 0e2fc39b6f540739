"""Files that appear under their name when they are complete."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO


@contextlib.contextmanager
def whole_file(target: Path, prefix: str, suffix: str = "") -> Iterator[IO[bytes]]:
    """A hidden file next to `target` to write to, renamed to it at the end of the block; on any error it is removed."""
    with tempfile.NamedTemporaryFile(dir=target.parent, prefix=prefix, suffix=suffix, delete=False) as file:
        try:
            yield file
            file.flush()
            os.fsync(file.fileno())
            os.chmod(file.name, 0o666 & ~_umask())
            os.replace(file.name, target)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask

"""Output folders of commands that make a folder with a manifest: new ones appear complete, and only their own kind is
replaced."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from ...runtime.base.errors import UnsafeFileError
from ..console.atomic_replace import short_name

EARLIER = ".replaced"
"""The suffix of an earlier output until the new one has its name."""


def check_output(folder: Path, manifest: str, model: str, *, force: bool, others: tuple[Path, ...] = ()) -> None:
    """UnsafeFileError for an output that would replace something else than what the command makes.

    Args:
        folder: absolute.
        manifest: the file by which a folder is known to be one that the command made.
        model: what it is made of, which has to be outside of it.
        force: whether an earlier one is replaced.
        others: further outputs.
    """
    earlier = next((each for each in (folder, *others) if os.path.lexists(each)), None)
    if earlier is not None and not force:
        raise UnsafeFileError("E-OUT-EXISTS", str(earlier), "the output exists", hint="Use --force to replace it")
    if os.path.lexists(folder) and (folder.is_symlink() or not (folder / manifest).is_file()):
        why = f"the output has no {manifest}, so this command did not make it"
        raise UnsafeFileError("E-OUT-EXISTS", str(folder), why, hint="Choose another output")
    if Path(model).resolve().is_relative_to(folder.resolve()):
        raise UnsafeFileError("E-OUT-INPUT", str(folder), "the output holds the model", hint="Choose another output")


@contextlib.contextmanager
def staged(folder: Path) -> Iterator[Path]:
    """A new folder that gets the name `folder` when the block ends, and is removed if it fails; an earlier one is
    removed last.

    Raises UnsafeFileError while another run makes it.
    """
    from ..write.staging import PARTIAL, locked_folder

    fresh = folder.with_name(f"{short_name(folder.name, len(PARTIAL))}{PARTIAL}")
    with locked_folder(fresh):
        try:
            yield fresh
        except BaseException:
            shutil.rmtree(fresh, ignore_errors=True)
            raise
        earlier = folder.with_name(f"{short_name(folder.name, len(EARLIER))}{EARLIER}")
        shutil.rmtree(earlier, ignore_errors=True)
        if folder.exists():
            folder.rename(earlier)
        try:
            fresh.rename(folder)
        except BaseException:
            if earlier.exists():
                earlier.rename(folder)
            raise
        shutil.rmtree(earlier, ignore_errors=True)

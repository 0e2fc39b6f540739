"""Staging of output files until they are complete, and the journal to resume an interrupted run.

Besides an untouched old output there are only ``OUT.partial`` (a file for one output, a folder for several) and
``OUT.partial.journal``; where these names would be too long, ``OUT`` is shortened. The journal's first line is the
plan's fingerprint; each later line names jobs whose bytes are on the disk.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO

from ...runtime.base.errors import UnsafeFileError
from ...runtime.base.system_error import refuse_special
from ...runtime.contract.format import FileLayout
from ..console.atomic_replace import short_name

PARTIAL, JOURNAL = ".partial", ".journal"
"""Endings of staged files and of their journal."""
REMOVE = "Remove the link"


class Staging:
    """The staging folder of one run.

    Args:
        folder: where the finished files go.
        name: what the folder is named after: the file's name, or the stem of several.
        files: what will be written.
        fingerprint: digest of everything that decides the bytes; a journal with another one is of no use.
    """

    def __init__(self, folder: Path, name: str, files: Sequence[FileLayout], fingerprint: str) -> None:
        self.folder = folder
        self.files = files
        self.fingerprint = fingerprint
        self.single = len(files) == 1
        name = short_name(Path(files[0].name).name if self.single else name, len(PARTIAL + JOURNAL))
        self.partial = folder / f"{name}{PARTIAL}"
        self.journal_path = folder / f"{name}{PARTIAL}{JOURNAL}"
        self.state: Callable[[], object] = dict
        """Further state of the jobs on record that a resumed run needs, as JSON; nothing unless it is set."""
        self.restored: object = {}
        """Its value when the last job of the earlier run was recorded."""
        self._journal: IO[str] | None = None
        self._made = False

    def path(self, file: FileLayout) -> Path:
        """Path of a file while it is written."""
        return self.partial if self.single else self.partial / file.name

    def final(self, file: FileLayout) -> Path:
        """Path of a file when it is complete."""
        return self.folder / file.name

    def open(self, resume: bool) -> set[int]:
        """Prepare the folder; with `resume`, the numbers of the jobs that an earlier run completed."""
        for file in self.files:
            refuse_special(self.final(file))
        self._made = not self.folder.exists()
        self.folder.mkdir(parents=True, exist_ok=True)
        for path in (self.partial, self.journal_path):
            if path.is_symlink():
                why = "is a link in the place of a temporary file; writing would change its target"
                raise UnsafeFileError("E-OUT-LINK", path, why, hint=REMOVE)
        self._journal = self._locked()
        done = self._completed() if resume else None
        if done is None:
            self._clear()
            self._journal.truncate(0)
            self._append({"plan": self.fingerprint})
        if not self.single:
            for file in self.files:
                self.path(file).parent.mkdir(parents=True, exist_ok=True)
        return done or set()

    def _locked(self) -> IO[str]:
        """The journal, which no other run has. One that another run removed, as it ended before the lock was ours, is
        made again."""
        while True:
            journal = open(self.journal_path, "a+", encoding="utf-8")  # noqa: SIM115 (held until publish)
            try:
                fcntl.flock(journal, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(journal.fileno()), os.stat(self.journal_path)):
                    return journal
            except BlockingIOError as error:
                journal.close()
                raise _busy(self.journal_path) from error
            except FileNotFoundError:
                pass
            journal.close()

    def _completed(self) -> set[int] | None:
        assert self._journal is not None
        self._journal.seek(0)
        try:
            plan, *records = [json.loads(line) for line in self._journal.read().split("\n")[:-1]]
        except ValueError:
            return None
        if plan != {"plan": self.fingerprint} or not all(isinstance(record, list | dict) for record in records):
            return None
        states = [record for record in records if isinstance(record, dict)]
        records = [record for record in records if isinstance(record, list)]
        if not all(self.path(file).is_file() and self.path(file).stat().st_size == file.nbytes for file in self.files):
            return None
        self.restored = states[-1].get("state", {}) if states else {}
        return {number for record in records for number in record}

    def record(self, jobs: Iterable[int]) -> None:
        """Note jobs whose bytes have reached the disk, and what is known of them."""
        state = self.state()
        if state:
            self._append({"state": state})
        self._append(sorted(jobs))

    def _append(self, line: object) -> None:
        assert self._journal is not None
        self._journal.write(json.dumps(line) + "\n")
        self._journal.flush()

    def publish(self, superseded: Callable[[], Iterable[Path]] = tuple) -> None:
        """Give the finished files their names; each old file is replaced at once.

        Args:
            superseded: files of an earlier output that the new one makes obsolete, which are removed; called while no
                other run publishes to the folder. Its error leaves the earlier output.
        """
        with _publishing(self.folder):
            obsolete = superseded()
            for file in self.files:
                final = self.final(file)
                refuse_special(final)
                if final.parent != self.folder and final.parent.is_symlink():
                    raise UnsafeFileError("E-OUT-LINK", final.parent, "is a link", hint=REMOVE)
                final.parent.mkdir(parents=True, exist_ok=True)
                os.replace(self.path(file), final)
            for path in obsolete:
                path.unlink(missing_ok=True)
            _sync_folder(self.folder)
        self.discard()

    def discard(self) -> None:
        """Remove the staged files."""
        self._clear()
        if self._journal is not None:
            self.journal_path.unlink(missing_ok=True)
            self.close()
        if self._made:
            with contextlib.suppress(OSError):  # it holds the output
                self.folder.rmdir()

    def close(self) -> None:
        """Let go of the journal and leave everything for a later `resume`."""
        if self._journal is not None:
            self._journal.close()
            self._journal = None

    def _clear(self) -> None:
        if self.partial.is_dir():
            shutil.rmtree(self.partial)
        else:
            self.partial.unlink(missing_ok=True)


@contextlib.contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """An empty folder for a block, which no other run has.

    Raises UnsafeFileError while another run has it, and if it is a link.
    """
    if folder.is_symlink():
        raise UnsafeFileError("E-OUT-LINK", folder, "is a link in the place of a temporary folder", hint=REMOVE)
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not folder.is_dir() or not os.path.samestat(os.fstat(handle), os.stat(folder)):
            raise _busy(folder)
        for left in folder.iterdir():
            if left.is_dir() and not left.is_symlink():
                shutil.rmtree(left)
            else:
                left.unlink()
        yield
    except BlockingIOError as error:
        raise _busy(folder) from error
    finally:
        os.close(handle)


def _busy(path: Path) -> UnsafeFileError:
    return UnsafeFileError("E-OUT-BUSY", path, "another run is writing this output", hint="Wait until it ends")


@contextlib.contextmanager
def _publishing(folder: Path) -> Iterator[None]:
    """A block in which no other run publishes to a folder, where its file system has locks."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

"""Report damaged files of a run over many and continue with the others."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ...models.pipelines.task_model import Progress
from ...models.preprocess.audio.sound import ShortSoundWarning
from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import Error, FileAccessError, FormatError, LimitError
from ...runtime.ir.graph import Note
from ..console.output import current, notes_json
from ..console.warned import warned

DAMAGE = (FormatError, FileAccessError, LimitError)
DAMAGED_CODES = ("E-PICTURE-MODE", "E-SOUND-CODING")
"""Codes of other errors that only concern one file."""


@dataclass(frozen=True)
class Readable:
    """The results for the files that can be read.

    Attributes:
        rows: the numbers of these files.
        results: one for each.
        errors: of the others, by number.
        notes: warnings about files that were read.
    """

    rows: Sequence[int]
    results: Sequence[Any]
    errors: Mapping[int, Error]
    notes: Sequence[Note] = ()

    @property
    def exit_code(self) -> int:
        """The largest of the errors', 0 without."""
        return max((error.exit_code for error in self.errors.values()), default=0)

    def errors_json(self, files: Sequence[str]) -> dict[str, Any]:
        """The fields ``errors`` and ``warnings`` of JSON mode, of which none stands for nothing."""
        rows = [{"input": files[row], **error.to_json()} for row, error in self.errors.items()]
        warned = notes_json(self.notes)
        return ({"errors": rows} if rows else {}) | ({"warnings": warned} if warned else {})


def over_rows(
    model: Any,
    verb: str,
    files: Sequence[str],
    batch: int,
    options: Mapping[str, Any],
    read: Callable[[str], Any] = str,
    progress: Progress | None = None,
) -> Readable:
    """Results of a model's method for files, as `over_readable`; a model on a cluster spreads them.

    Args:
        verb: name of the method, which takes a list of inputs and `options`.
        read: makes an input of a path, a function of a module.
    """
    groups = getattr(model, "groups", None)
    if groups is not None:
        return collected(files, groups(files, batch, options, read, progress))
    call = getattr(model, verb)
    return over_readable(files, batch, lambda some: call([read(each) for each in some], **options), progress)


Group = tuple[list[int], Sequence[Any] | Error]
"""Numbers of files, with the result of each, or with the error of the only one."""


def over_readable(
    files: Sequence[str], batch: int, compute: Callable[[list[str]], Sequence[Any]], progress: Progress | None = None
) -> Readable:
    """Compute a result of each file, at most `batch` at once; a line on standard error for each damaged one.

    The error of a single file is raised.
    """
    return collected(files, groups_of(files, batch, compute, progress))


def groups_of(
    files: Sequence[str], batch: int, compute: Callable[[list[str]], Sequence[Any]], progress: Progress | None = None
) -> Iterator[Group]:
    """Groups of at most `batch` files with what is computed of them; those with a damaged file are taken apart."""
    groups = [list(range(len(files))[start : start + batch]) for start in range(0, len(files), batch)][::-1]
    while groups:
        group = groups.pop()
        try:
            yield group, compute([files[row] for row in group])
        except Error as error:
            if not _of_file(error):
                raise
            if len(group) > 1:
                groups.extend([row] for row in reversed(group))
                continue
            if error.file is None:
                error.file = files[group[0]]
            yield group, error
        if progress is not None:
            progress(group[-1] + 1, len(files))


def collected(files: Sequence[str], groups: Iterator[Group]) -> Readable:
    """The results in `groups`; a line on standard error for each damaged file. The error of a single file is raised."""
    rows: list[int] = []
    results: list[Any] = []
    errors: dict[int, Error] = {}
    notes: list[Note] = []
    while True:
        with _short_sounds(notes):
            group = next(groups, None)
        if group is None:
            return Readable(rows, results, errors, notes)
        numbers, found = group
        if not isinstance(found, Error):
            rows += numbers
            results.extend(found)
            continue
        if len(files) == 1:
            raise found
        errors[numbers[0]] = found
        if not current().json:
            current().complain(str(found))


@contextlib.contextmanager
def _short_sounds(notes: list[Note]) -> Iterator[None]:
    """Show and keep the warnings of sounds that are cut short."""
    with warned(ShortSoundWarning, "W-SOUND-SHORT") as new:
        yield
    current().warn(new)
    notes += new


def _of_file(error: Error) -> bool:
    return isinstance(error, DAMAGE) or error.code in DAMAGED_CODES

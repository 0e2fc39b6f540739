"""Checkpoints of finetuning: a file next to the output, from which an interrupted run goes on."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...runtime.base.errors import UsageError
from ...training.checkpoint.nested_file import load_nested, save_nested
from ...training.checkpoint.run_state import taken_from
from ..console.atomic_replace import short_name

if TYPE_CHECKING:
    from .examples import Example
    from .loop import Measures
    from .session import Session, Wanted

ENDING = ".checkpoint"
OUTPUT = ("merge", "dtype")
"""Of `Wanted`: what only the output depends on."""
TOLERANCE = 1e-3
"""Between the losses of one model on two machines."""


class Checkpoint:
    """The file of a run.

    Args:
        before: what the model made of the rows that are held back before it was trained.
    """

    def __init__(self, output: str, session: Session, before: Measures) -> None:
        path = Path(os.path.abspath(output))
        self.path = path.with_name(f"{short_name(path.name, len(ENDING))}{ENDING}")
        self._training, self._before = session.training, before
        self._run = _described(session.wanted, session.learned)

    def save(self) -> None:
        """Write the state of a run whose last step is whole.

        Raises FileAccessError if the file cannot be written.
        """
        save_nested({"run": self._run, "before": self._before.loss, **self._training.state()}, self.path)

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Save where the block is interrupted, unless a step was left in its middle."""
        try:
            yield
        except KeyboardInterrupt:
            if self._training.is_whole:
                self.save()
            raise

    def load(self) -> int:
        """Resume from the file; returns the number of steps of its run, 0 without a file.

        Raises UsageError if it is of another run, FormatError if it is damaged.
        """
        if not self.path.exists():
            return 0
        state = load_nested(self.path)
        with taken_from(str(self.path)):
            before, run = float(state["before"]), {name: state["run"].get(name) for name in self._run}
            others = [name for name, value in self._run.items() if run[name] != value]
        for name in others:
            raise self._of_another(f"with another {name}", self._run[name], run[name])
        if not math.isclose(before, self._before.loss, rel_tol=TOLERANCE):
            what = "of another model or on other rows, by the loss before it"
            raise self._of_another(what, f"{self._before.loss:g}", f"{before:g}")
        with taken_from(str(self.path)):
            self._training.load_state(state)
        return len(self._training.losses)

    def remove(self) -> None:
        """Remove the file; the output is written."""
        self.path.unlink(missing_ok=True)

    def _of_another(self, what: str, expected: Any, found: Any) -> UsageError:
        hint = "Give the options of that run, or leave out --resume"
        return UsageError("E-CHECKPOINT", self.path, f"is of a run {what}", expected=expected, found=found, hint=hint)


def _described(wanted: Wanted, examples: Sequence[Example]) -> dict[str, Any]:
    """The options that training depends on, and a checksum of the training data."""
    options = {name: value for name, value in dataclasses.asdict(wanted).items() if name not in OUTPUT}
    learned = [(example.labels, example.ids, example.types, example.picture) for example in examples]
    return {**options, "rows": f"{len(examples)}, {zlib.crc32(repr(learned).encode()):08x}"}

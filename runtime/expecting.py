"""Expecting: kernels that a program will need for other shapes are compiled with those of its first run, so that no later run compiles any.

Which kernels compute a graph depends on shapes a little: whether there is one row, whether enough elements for a loop of their own. A program is
planned for the shapes that may come where its first plan needs a kernel that this machine has not compiled, and where no note in the cache says
that this has been done for a program like it.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import lengths, machine
from .blocks import Blocks
from .digest import sha256
from .errors import Error
from .planner import Planner
from .spending import available

if TYPE_CHECKING:
    from .program import Program, Run

Others = Callable[[Sequence[Any]], Iterable[Sequence[Any]]]
MOST_PACKED = 0.25
"""The part of the free memory up to which weights are packed once more to find the kernels of other shapes."""
UNFIT = (Error, ArithmeticError, LookupError, ValueError)
"""What shapes raise that a graph does not take, which nobody has fed."""


class Expecting:
    """The runs that may follow the first one of a program.

    Attributes:
        others: given the arrays of a run, makes those of others.
    """

    def __init__(self, program: Program) -> None:
        self.others: Others = functools.partial(lengths.others, program.inputs, nodes=len(program.nodes))
        self._program = program
        self._looked = self._planned = self._noting = False

    def kernels(self, feeds: Sequence[Any], run: Run, missing: bool) -> list[Any]:
        """What runs that may follow call, found once; `missing` says whether something has to be compiled anyway."""
        if self._planned or (self._looked and not missing) or run.taps is not None:
            return []
        self._looked = True
        others = iter(self.others(feeds))
        first = next(others, None)
        if first is None or (not missing and self._noted()) or not self._room():
            return []
        self._planned = self._noting = True
        return self._of([first, *others], feeds, run)

    def note(self) -> None:
        """Leave a note that these kernels have been compiled, if they have just been."""
        path, self._noting = self._note() if self._noting else None, False
        if path is not None:
            with contextlib.suppress(OSError):
                path.parent.mkdir(mode=0o700, exist_ok=True)
                path.touch()

    def _of(self, others: Iterable[Sequence[Any]], feeds: Sequence[Any], run: Run) -> list[Any]:
        """Kernels of plans; what is packed on the way is let go."""
        beside = self._program.beside()
        found: dict[Any, None] = {}
        seen = {beside.signatures(feeds)}
        for other in others:
            signatures = beside.signatures(other)
            if signatures not in seen:
                seen.add(signatures)
                with contextlib.suppress(*UNFIT):
                    found |= dict.fromkeys(Planner(beside, signatures, run.threads, run.native, None).kernels())
        return list(found)

    def _room(self) -> bool:
        free = available()
        plain = sum(array.nbytes for array in self._program.weights.values() if not isinstance(array, Blocks))
        return free is None or plain <= free * MOST_PACKED

    def _noted(self) -> bool:
        path = self._note()
        return path is not None and path.exists()

    def _note(self) -> Path | None:
        """The file of the note: named for operators, their plain attributes, and what is fed and held."""
        kernels = machine.folder()
        if kernels is None:
            return None
        program = self._program
        held = [(array.dtype, array.shape) for array in program.weights.values()]
        nodes = [
            (node.op.domain, node.op.name, len(node.inputs), [item for item in node.attributes.items() if isinstance(item[1], str | int | float)])
            for node in program.nodes
        ]
        facts = repr(([(value.dtype, value.shape) for value in program.inputs], held, nodes, machine.platform()))
        return kernels.with_name("shapes") / sha256(facts.encode()).hexdigest()[:32]

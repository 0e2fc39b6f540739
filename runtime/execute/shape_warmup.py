"""Shape warm-up: compiles kernels for expected shapes with the first run, so that later runs compile none.

The choice of kernels depends on shapes: one row or many, enough elements for a specialized loop. A program is planned
for expected shapes if its first plan needs a kernel that is not in the cache, unless a note in the cache says that
this was done for a program like it.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..base.errors import Error
from ..base.memory_check import available
from ..base.sha256 import sha256
from ..jit import code_cache
from ..plan.input_signature import Signatures
from ..plan.layout import ordered
from ..plan.planner import Planner
from ..region import expected_shapes
from ..region.region import HostWeight, Region
from ..tensor.weight_array import Blocks
from .run_options import RunOptions

ExpectedFeeds = Callable[[Sequence[Any]], Iterable[Sequence[Any]]]
MAX_PACKED_SHARE = 0.25
"""Largest share of free memory that repacked weights may take while kernels of other shapes are found."""
INVALID_SHAPE_ERRORS = (Error, ArithmeticError, LookupError, ValueError)
"""Errors of planning an expected shape that the graph does not accept; the shape is skipped."""


class ShapeWarmup:
    """Finds the kernels of runs that may follow the first run of a program.

    Attributes:
        expected_feeds: yields the arrays of expected runs, given those of the first.
    """

    def __init__(self, region: Region[HostWeight], signatures: Signatures) -> None:
        self.expected_feeds: ExpectedFeeds = functools.partial(
            expected_shapes.expected_feeds, region.inputs, nodes=len(region.nodes)
        )
        self._region = region
        self._signatures = signatures
        self._checked = self._planned = self._noting = False

    def kernels(self, feeds: Sequence[Any], run: RunOptions, missing: bool) -> list[Any]:
        """The kernels of expected runs, returned once; `missing`: whether the first run has to compile kernels."""
        if self._planned or (self._checked and not missing) or run.taps is not None:
            return []
        self._checked = True
        expected_feeds = iter(self.expected_feeds(feeds))
        first = next(expected_feeds, None)
        if first is None or (not missing and self._has_note()) or not self._has_memory():
            return []
        self._planned = self._noting = True
        return self._kernels_of([first, *expected_feeds], feeds, run)

    def note(self) -> None:
        """Write the note in the cache, if the kernels have just been compiled."""
        path, self._noting = self._note() if self._noting else None, False
        if path is not None:
            with contextlib.suppress(OSError):
                path.parent.mkdir(mode=0o700, exist_ok=True)
                path.touch()

    def _kernels_of(self, expected_feeds: Iterable[Sequence[Any]], feeds: Sequence[Any], run: RunOptions) -> list[Any]:
        """Kernels of plans for expected feeds; weights packed on the way are dropped."""
        region, own = replace(self._region, packed=dict(self._region.packed)), self._signatures.copy()
        found: dict[Any, None] = {}
        seen = {own.of(feeds)}
        for other in expected_feeds:
            signatures = own.of(other)
            if signatures not in seen:
                seen.add(signatures)
                with contextlib.suppress(*INVALID_SHAPE_ERRORS):
                    planner = Planner(region, signatures, run.threads, run.native, None)
                    planner.run()
                    found |= dict.fromkeys(ordered(planner).kernels)
        return list(found)

    def _has_memory(self) -> bool:
        free = available()
        plain = sum(array.nbytes for array in self._region.weights.values() if not isinstance(array, Blocks))
        return free is None or plain <= free * MAX_PACKED_SHARE

    def _has_note(self) -> bool:
        path = self._note()
        return path is not None and path.exists()

    def _note(self) -> Path | None:
        """Path of the note, a digest of operators, scalar attributes, inputs and weights; None without a cache."""
        kernels = code_cache.folder()
        if kernels is None:
            return None
        region = self._region
        held = [(array.dtype, array.shape) for array in region.weights.values()]
        nodes = [
            (
                node.op.domain,
                node.op.name,
                len(node.inputs),
                [item for item in node.attributes.items() if isinstance(item[1], str | int | float)],
            )
            for node in region.nodes
        ]
        facts = repr(([(value.dtype, value.shape) for value in region.inputs], held, nodes, code_cache.platform()))
        return kernels.with_name("shapes") / sha256(facts.encode()).hexdigest()[:32]

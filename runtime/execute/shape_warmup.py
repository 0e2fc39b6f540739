"""Shape warm-up: compiles kernels for expected shapes after the first run, so that later runs compile none.

The choice of kernels depends on shapes: one row or many, enough elements for a specialized loop. The first run compiles
its own kernels and those of the runs that follow at once; a background process plans a program for all other expected
shapes and compiles their kernels, unless a note in the cache says that this was done for a program like it.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

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
from .background_compile import BACKGROUND
from .compile_ahead import compile_all, missing
from .run_options import RunOptions

ExpectedFeeds = Callable[[Sequence[Any]], Iterable[Sequence[Any]]]
MAX_KEPT_NBYTES = 1 << 12
"""Size up to which a feed of the first run is kept for the background process; larger ones select no kernels."""
MAX_PACKED_SHARE = 0.25
"""Largest share of free memory that repacked weights may take while kernels of other shapes are found."""
INVALID_SHAPE_ERRORS = (Error, ArithmeticError, LookupError, ValueError)
"""Errors of planning an expected shape that the graph does not accept; the shape is skipped."""


class ShapeWarmup:
    """Finds the kernels of runs that may follow the first run of a program.

    Attributes:
        expected_feeds: yields the arrays of expected runs, given those of the first.
        imminent: how many of them follow the first run at once.
    """

    def __init__(self, region: Region[HostWeight], signatures: Signatures) -> None:
        self.expected_feeds: ExpectedFeeds = functools.partial(
            expected_shapes.expected_feeds, region.inputs, nodes=len(region.nodes)
        )
        self.imminent = 0
        self._region = region
        self._signatures = signatures
        self._checked = self._started = False

    def imminent_kernels(self, feeds: Sequence[Any], run: RunOptions) -> list[Any]:
        """The kernels of the runs that follow at once."""
        if run.taps is not None or not self.imminent:
            return []
        imminent = itertools.islice(self.expected_feeds(feeds), self.imminent)
        return self._kernels_of(self._region, imminent, feeds, run)

    def compile_later(self, feeds: Sequence[Any], run: RunOptions, missing: bool) -> None:
        """Compile the kernels of expected runs in the background, once; `missing`: whether the first run had to compile
        kernels."""
        if self._started:
            if missing:
                BACKGROUND.resume()
            return
        if (self._checked and not missing) or run.taps is not None:
            return
        self._checked = True
        if not missing and (next(iter(self.expected_feeds(feeds)), None) is None or self._has_note()):
            return
        self._started = True
        if (note := self._note()) is not None:  # what it says has been deleted
            note.unlink(missing_ok=True)
        BACKGROUND.add(functools.partial(_compile_expected, weakref.ref(self), [*map(_without_content, feeds)], run))

    def compile_now(self, feeds: Sequence[Any], run: RunOptions) -> None:
        """Compile the kernels of expected runs that are not in the cache."""
        expected_feeds = list(self.expected_feeds(feeds))
        if run.taps is None and expected_feeds and not self._has_note() and self._has_memory():
            compile_all(missing(self.expected_kernels(expected_feeds, feeds, run)))
            self._write_note()

    def expected_kernels(
        self, expected_feeds: Iterable[Sequence[Any]], feeds: Sequence[Any], run: RunOptions
    ) -> list[Any]:
        """The kernels of expected runs; weights packed on the way are dropped."""
        region = replace(self._region, packed=dict(self._region.packed))
        return self._kernels_of(region, expected_feeds, feeds, run)

    def _write_note(self) -> None:
        path = self._note()
        if path is not None:
            with contextlib.suppress(OSError):
                path.parent.mkdir(mode=0o700, exist_ok=True)
                path.touch()

    def _kernels_of(
        self, region: Region[HostWeight], expected_feeds: Iterable[Sequence[Any]], feeds: Sequence[Any], run: RunOptions
    ) -> list[Any]:
        """Kernels of plans for expected feeds."""
        own = self._signatures.copy()
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


def _compile_expected(warmup: weakref.ref[ShapeWarmup], feeds: Sequence[Any], run: RunOptions) -> None:
    """The task of the background process; nothing to do for a program that is gone."""
    target = warmup()
    if target is not None:
        target.compile_now(feeds, run)


def _without_content(feed: Any) -> Any:
    """An array of the same dtype and shape, which takes no memory if it is large."""
    if not isinstance(feed, np.ndarray) or feed.nbytes <= MAX_KEPT_NBYTES:
        return feed
    return np.broadcast_to(np.zeros((), feed.dtype), feed.shape)

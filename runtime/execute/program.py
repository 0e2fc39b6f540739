"""Program: a region with plans cached by input signature; concurrent runs have separate workspaces."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..base.gc_pause import unsearched
from ..base.limits import current
from ..plan.bytecode import encoded
from ..plan.input_signature import Signatures
from ..plan.layout import check, layout_of
from ..plan.plan import Plan
from ..plan.planner import Planner
from ..region.region import HostWeight, Region
from .background_compile import BACKGROUND
from .compile_ahead import prepare
from .region_program import RegionProgram
from .run_options import RunOptions
from .runner import Bailout, Runner
from .shape_warmup import ShapeWarmup

RECENT, MAX_IDLE_NBYTES = 2, 16 << 20
"""Plans that keep their workspaces, and bytes of workspaces that all older plans may keep together."""


class Program(RegionProgram[HostWeight, Runner]):
    """Runs a region.

    Args:
        specialized: whether to make one plan per value of inputs that control flow depends on.

    Attributes:
        warmup: compiles kernels of expected shapes after the first run.
    """

    def __init__(self, region: Region[HostWeight], specialized: bool = False) -> None:
        super().__init__(region)
        self._signatures = Signatures(region, specialized)
        self.warmup = ShapeWarmup(region, self._signatures)
        self._newest: Runner | None = None
        self._last: tuple[Any, ...] = ()

    def run(self, feeds: Sequence[Any], run: RunOptions) -> list[Any]:
        """Outputs for arrays (or lists, maps, None) in the order of `inputs`."""
        last, kinds = self._last, [(feed.dtype, feed.shape) if type(feed) is np.ndarray else None for feed in feeds]
        if last and last[0] == kinds and last[1:3] == (run.native, run.taps) and not current().chosen:
            return self._run(last[3], feeds, run)
        runner = self.prepare(feeds, run)
        if not self._signatures.specialized and None not in kinds:
            self._last = (kinds, run.native, run.taps, runner)
        return self._run(runner, feeds, run)

    @unsearched
    def prepare(self, feeds: Sequence[Any], run: RunOptions) -> Runner:
        """The runner of the plan for the signature of `feeds`; plans and compiles if needed."""
        key = (self._signatures.of(feeds), run.taps, run.native)
        runner = self._plans.get(key)
        if runner is None:
            runner = Runner(self._planned(key[0], feeds, run), self.region.packed, Program)
        elif current().chosen:
            check(runner.plan, run.threads)
        return runner if runner is self._newest else self._used(key, runner)

    def _planned(self, signatures: Sequence[Any], feeds: Sequence[Any], run: RunOptions) -> Plan:
        """A plan; its kernels are compiled, and those of expected shapes in the background."""
        planner = Planner(self.region, signatures, run.threads, run.native, run.taps)
        planner.run()
        layout = layout_of(planner)
        if layout.kernels:
            from .interpreter import help_team, walk

            own = [*layout.kernels, walk, help_team]
            missing = prepare(own, functools.partial(self.warmup.imminent_kernels, feeds, run))
            self.warmup.compile_later(feeds, run, missing)
        return encoded(layout)

    def _used(self, key: Hashable, runner: Runner) -> Runner:
        """As the base; older plans release workspaces."""
        self._newest = runner = super()._used(key, runner)
        with self._lock:
            allowance = MAX_IDLE_NBYTES
            for older in itertools.islice(reversed(self._plans.values()), RECENT, None):
                allowance -= older.idle
                if allowance < 0:
                    older.release()
        return runner

    @property
    def idle(self) -> int:
        """Bytes of workspaces kept for later runs."""
        return sum(runner.idle for runner in self.runners)

    def release(self) -> None:
        """Free the workspaces; later runs make new ones."""
        for runner in self.runners:
            runner.release()

    def prepare_others(self, feeds: Sequence[Any], run: RunOptions) -> None:
        """Compile kernels of expected shapes."""
        BACKGROUND.pause()
        self.warmup.compile_now(feeds, run)

    def _run(self, runner: Runner, feeds: Sequence[Any], run: RunOptions) -> list[Any]:
        try:
            return runner.run(feeds, run)
        except Bailout:
            return self.run(feeds, replace(run, native=False))

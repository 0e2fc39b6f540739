"""Session: a graph prepared to run on one backend, with ONNX Runtime's interface."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .base.errors import UnsupportedError, UsageError, printable
from .base.gc_pause import unsearched
from .base.limits import current
from .base.memory_check import check_weights
from .base.units import counted
from .devices import backend_of
from .execute.run_options import OnTap, RunOptions
from .ir.function import inline, nodes_below
from .ir.graph import Graph, Value
from .ir.shape_inference import check_types, kept_inferences
from .session_options import SessionKeywords, SessionOptions
from .tensor.storage import Held

if TYPE_CHECKING:
    from typing import Unpack

    from .base.untrusted.regex import Searcher
    from .execute.replay import Replay
    from .execute.timing import Clock
    from .passes.pattern.stage import Pass

MIN_COMPILED_NODES = 8
"""Smaller graphs with little data run in NumPy, which is faster than compiling kernels."""
MAX_CHECKED_SIGNATURES = 64
"""Input signatures (dtypes, shapes) remembered as valid."""
MIN_COMPILED_ELEMENTS = 1 << 14
"""Elements of weights or inputs from which kernels are compiled."""


class Session:
    """Runs a graph on the host or a device. Several threads may use one session at once.

    Args:
        graph: upgraded to the newest opset in place.
        threads, options: the fields of `SessionOptions`.

    Attributes:
        on_device: whether it runs on a device, where results can stay (`run_on_device`).
        packed: what planners have made of weights for the CPU.
        program: what runs the graph, which is simplified where the options say so.
    """

    @unsearched
    def __init__(self, graph: Graph, threads: int | None = None, **options: Unpack[SessionKeywords]) -> None:
        from .ir.clone import copied_graph
        from .ir.opset_upgrade import upgrade
        from .passes.pattern.stage import PipelineOptions
        from .passes.pipeline import required, simplifying

        chosen = SessionOptions(threads, **options)
        self.graph = graph
        upgrade(graph)
        if graph.functions:
            graph = copied_graph(graph, {}, typed=True)
            inline(graph)
        nodes = list(nodes_below(graph))
        missing = sorted({f"{node.op.domain or 'ai.onnx'}.{node.op.name}" for node in nodes if node.op.compute is None})
        if missing:
            why = f"no implementation of {', '.join(missing)}"
            raise UnsupportedError("E-OP-MISSING", None, why, hint="List them with candle-convert ops")
        if graph.format == "onnx":
            check_types(copied_graph(graph, {}, typed=True))
        tensors = graph.weights.values()
        check_weights(graph.nbytes, sum(tensor.nbytes for tensor in tensors if not isinstance(tensor.storage, Held)))
        self.device = chosen.device
        self.packed: dict[Any, Any] = {} if chosen.shares_weights_with is None else chosen.shares_weights_with.packed
        self.threads = chosen.thread_count
        self._backend = backend_of(chosen, self.packed)
        self.on_device = self._backend.on_device
        self._native = chosen.native
        self._large = (
            len(nodes) >= MIN_COMPILED_NODES
            or sum(tensor.count for tensor in graph.weights.values()) >= MIN_COMPILED_ELEMENTS
        )
        held = graph.weights.keys() - set(chosen.fed_defaults)
        self._inputs = [value for value in graph.inputs if value.name not in held]
        self._defaults = {value.name for value in graph.inputs} & held
        passes = PipelineOptions(chosen.activations)
        self._chosen, self._lock = chosen, threading.Lock()
        self._others: dict[frozenset[str], Session] = {}
        self._unoptimized = made = _apply_passes(graph, required(self._backend.name, passes), self._defaults)
        if chosen.simplify or (chosen.simplify is None and self._large):
            made = _apply_passes(made, simplifying(self._backend.name, passes))
        self.program: Any = self._backend.program(made)
        self._names = [value.name for value in self._inputs]
        self._input_positions = self._program_inputs(list(range(len(self._names))))
        self._checked_runs: dict[Any, Any] = {}
        self._tap_program = self.program if made is self._unoptimized else None

    def __repr__(self) -> str:
        sides = self.get_inputs(), self.get_outputs()
        inputs, outputs = (", ".join(value.name for value in values)[:200] for values in sides)
        return f"<Session {printable(f'{inputs} -> {outputs}')}, {self.device}, {counted(self.threads, 'thread')}>"

    def get_inputs(self) -> list[Value]:
        """The required inputs."""
        return [value for value in self.graph.inputs if value.name not in self.graph.weights]

    def get_outputs(self) -> list[Value]:
        """The outputs."""
        return list(self.graph.outputs)

    def run(self, names: Sequence[str] | None, feeds: Mapping[str, Any], *, clock: Clock | None = None) -> list[Any]:
        """Compute outputs by name (None or an empty sequence for all).

        Args:
            feeds: for each input an array (of numpy, torch, or anything that speaks DLPack); a list for a sequence;
                None for an empty optional.
            clock: records the duration of every step; device steps are synchronized one by one.

        Raises UsageError for missing or unknown inputs, and for wrong dtypes or shapes.
        """
        if self._defaults and not self._defaults.isdisjoint(feeds):
            return self._feeding(feeds).run(names, feeds, clock=clock)
        arrays = list(map(feeds.get, self._names)) if len(feeds) == len(self._names) else []
        signature = tuple([(array.dtype, array.shape) if type(array) is np.ndarray else None for array in arrays])
        run = self._checked_runs.get(signature)
        if run is None or clock is not None or current().chosen:
            found = self._checked_run(feeds, clock, signature)
        else:
            found = self.program.run([arrays[position] for position in self._input_positions], run)
        return self._select_outputs(names, found) if names else found

    def repeated(self, name: str, feeds: Mapping[str, np.ndarray]) -> Callable[[], Any] | None:
        """A function that recomputes one output from the current contents of the arrays `feeds`, None if that is not
        faster than `run`.

        `run` must have accepted these arrays before. One thread at a time may call the function.
        """
        if not self._defaults.isdisjoint(feeds):
            return self._feeding(feeds).repeated(name, feeds)
        if not feeds.keys() >= set(self._names):
            return None
        names = [value.name for value in self.graph.outputs]
        fitting = self._program_inputs([feeds[name] for name in self._names])
        return self._backend.repeated(self.program, fitting, self._options(fitting), names.index(name))

    def replay(self, feeds: Sequence[np.ndarray]) -> Replay | None:
        """Runs on arrays that stay, None where the plan is not native code alone.

        `run` must have accepted arrays like `feeds`, which are in the order of `get_inputs`.
        """
        if not self._backend.reruns_directly or current().chosen:
            return None
        from .execute.replay import replay

        fitting = self._program_inputs(list(feeds))
        return replay(self.program, fitting, self._options(fitting), self._input_positions)

    def expect(self, others: Callable[[], Iterable[Mapping[str, Any]]], imminent: int = 0) -> None:
        """Set the feeds expected later (by default other lengths of symbolic dimensions); CPU only.

        Kernels of the first `imminent` of them are compiled with those of the first run, the others in the background.
        """
        from .feeds import checked

        def arrays(first: Sequence[Any]) -> Iterable[Sequence[Any]]:
            fitting = (each for each in others() if self._defaults.isdisjoint(each))
            return (self._program_inputs(checked(self._inputs, each)) for each in fitting)

        self._backend.expect(self.program, arrays, imminent)

    def prepare(self, feeds: Mapping[str, Any]) -> None:
        """Plan a run for the dtypes and shapes of `feeds`; compile these and expected kernels; CPU only."""
        from .feeds import checked

        if not self._defaults.isdisjoint(feeds):
            self._feeding(feeds).prepare(feeds)
            return
        arrays = self._program_inputs(checked(self._inputs, feeds))
        self._backend.prepare(self.program, arrays, self._options(arrays))

    def _checked_run(self, feeds: Mapping[str, Any], clock: Clock | None, signature: tuple[Any, ...]) -> list[Any]:
        """Check feeds and run; remember the signature, so that equal signatures skip the check."""
        from .feeds import checked

        arrays = checked(self._inputs, feeds)
        fitting = self._program_inputs(self._backend.accept(arrays))
        found = self._results(self.program, fitting, clock=clock)
        if not self._backend.reruns_directly:
            return found
        as_fed = all(feeds.get(name) is array for name, array in zip(self._names, arrays, strict=True))
        if signature and None not in signature and as_fed:
            if len(self._checked_runs) >= MAX_CHECKED_SIGNATURES:
                self._checked_runs = {}
            self._checked_runs[signature] = self._options(fitting)
        return found

    def run_on_device(self, feeds: Mapping[str, Any], *, move: bool = True) -> list[Any]:
        """All outputs as device arrays (`runtime.cuda.memory.device_array.DeviceArray`), for feeds on host or device.

        They support DLPack and ``__cuda_array_interface__``, can be fed to other runs without a copy, and belong to the
        caller. Outputs of layers on the CPU are uploaded if `move` is true. Raises UsageError on the CPU.
        """
        from .feeds import checked

        if not self._defaults.isdisjoint(feeds):
            return self._feeding(feeds).run_on_device(feeds, move=move)
        arrays = self._backend.accept(checked(self._inputs, feeds))
        return self._backend.run_on_device(self.program, self._program_inputs(arrays), move)

    def run_with_taps(self, feeds: Mapping[str, Any], taps: str, on_tap: Callable[[str, Any], None]) -> list[Any]:
        """Compute all outputs, and pass intermediate values whose name matches the pattern `taps` to `on_tap`.

        They come one by one while the run goes on, in the order of computation, each a copy, so that memory does not
        grow with their number. The model runs as it is in its file. A value inside a subgraph has the path to it before
        its name: the name of the node (of its first output if it is unnamed), the attribute, and again for subgraphs
        below, as in ``loop/body/x``; it comes once for each iteration. A value inside a function has the name of the
        call before its own: ``call/x``. Sequences come as lists.
        """
        from .base.untrusted.regex import compiled
        from .feeds import checked

        if not self._defaults.isdisjoint(feeds):
            return self._feeding(feeds).run_with_taps(feeds, taps, on_tap)
        arrays = self._backend.accept(checked(self._inputs, feeds))
        if self._tap_program is None:
            self._tap_program = self._backend.program(self._unoptimized)
        fitting = self._program_inputs(arrays, self._tap_program)
        return self._results(self._tap_program, fitting, compiled(taps), on_tap)

    def _results(
        self,
        program: Any,
        arrays: list[Any],
        taps: Searcher | None = None,
        on_tap: OnTap | None = None,
        clock: Clock | None = None,
    ) -> list[Any]:
        end = time.monotonic() + current().time if "time" in current().chosen else math.inf
        return self._backend.run(
            program, arrays, RunOptions(self.threads, self._compiled(arrays), taps, on_tap, end, clock)
        )

    def _options(self, arrays: Sequence[Any]) -> RunOptions:
        return RunOptions(self.threads, self._compiled(arrays))

    def _feeding(self, feeds: Mapping[str, Any]) -> Session:
        """A session of the same graph whose runs feed the defaults that are fed here."""
        fed = frozenset(self._defaults.intersection(feeds))
        with self._lock:
            if fed not in self._others:
                options = {field: getattr(self._chosen, field) for field in SessionKeywords.__annotations__}
                options |= {"fed_defaults": fed.union(self._chosen.fed_defaults), "shares_weights_with": self}
                self._others[fed] = Session(self.graph, self.threads, **options)
            return self._others[fed]

    def _program_inputs(self, arrays: list[Any], program: Any = None) -> list[Any]:
        """The arrays of inputs that a program, by default the optimized one, still has."""
        inputs = (program or self.program).inputs
        if len(inputs) == len(arrays):
            return arrays
        left = {value.name for value in inputs}
        return [array for value, array in zip(self._inputs, arrays, strict=True) if value.name in left]

    def _compiled(self, arrays: Sequence[Any]) -> bool:
        if self._native is None and not self._large:
            return sum(getattr(array, "size", 0) for array in arrays) >= MIN_COMPILED_ELEMENTS
        return self._native is not False

    def _select_outputs(self, names: Sequence[str], found: Sequence[Any]) -> list[Any]:
        by_name = {value.name: result for value, result in zip(self.graph.outputs, found, strict=True)}
        unknown = [name for name in names if name not in by_name]
        if unknown:
            why = f"no output named {unknown[0]!r}"
            raise UsageError("E-RUN-OUTPUT", None, why, expected=", ".join(by_name), hint="get_outputs() lists them")
        return [by_name[name] for name in names]


def _apply_passes(graph: Graph, passes: Sequence[Pass], constant: Collection[str] = ()) -> Graph:
    """A copy of a graph, some inputs of which are constants, with passes applied."""
    from .ir.clone import copied_graph

    made = copied_graph(graph, {}, typed=True)
    made.inputs = [value for value in made.inputs if value.name not in constant]
    with kept_inferences():
        for each in passes:
            each.run(made)
    return made

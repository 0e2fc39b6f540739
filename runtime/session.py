"""Sessions: a graph made ready to run, in the shape of ONNX Runtime's."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import UnsupportedError, UsageError, printable
from .functions import inline, nodes_below
from .garbage import unsearched
from .graph import Graph, Value
from .infer import check_types
from .limits import current
from .spending import available, check_weights
from .storage import Held
from .units import counted

if TYPE_CHECKING:
    from .regex import Searcher
    from .timing import Clock

SMALL_GRAPH = 8
"""Nodes below which a graph of little data runs in NumPy rather than pay for compiled kernels."""
MOST_SEEN = 64
"""Sets of dtypes and shapes of feeds that are known to fit."""
UNASKED = np.zeros(0, np.uint8)
"""In place of a default that the program does not ask for."""
MOST_FOLDED = 1 << 30
"""Bytes of a constant that is computed ahead, where an eighth of the free memory is not less."""
SMALL_DATA = 1 << 14
"""Elements of weights or inputs that are little."""


class Session:
    """Runs a graph on the host or a device. Several threads may use one session at once.

    Args:
        graph: its nodes are taken to the newest opset in place.
        threads: threads of one run, all cores where None. Results depend on nothing else.
        native: whether kernels are compiled: None leaves out small graphs, for which NumPy is fast enough.
        activations: what products with weights take their rows in: ``f32`` as they are; ``q8`` rounded to 8 bits, each run of 32 neighbours
            with a scale of its own, as llama.cpp does for quantized weights, and many rows that meet f16 or bf16 about as finely as these.
        simplify: whether a copy of the graph is simplified first; None leaves out small graphs.
        beside: another session of the same graph, whose copies of weights this one uses.
        lent: inputs whose arrays a run may write into; an output that is such an input with some rows changed is the very array then.
        device: ``cpu``, ``cuda`` or ``cuda:1``; operators without a CUDA path run on the host.
        device_memory: the most bytes that sessions may hold on the device together when this one adds to them, what is free there where None.
        gpu_layers: how many of the model's layers run on the device, ``auto`` for those whose weights and states fit, all where None.
    """

    @unsearched
    def __init__(
        self, graph: Graph, threads: int | None = None, native: bool | None = None, simplify: bool | None = None, activations: str = "f32",
        device: str = "cpu", lent: Collection[str] = (), beside: Session | None = None, device_memory: int | None = None,
        gpu_layers: int | str | None = None,
    ) -> None:
        from .copies import copied_graph
        from .upgrade import upgrade

        self.graph = graph
        upgrade(graph)
        if graph.functions:
            graph = copied_graph(graph, {}, typed=True)
            inline(graph)
        nodes = list(nodes_below(graph))
        missing = sorted({f"{node.op.domain or 'ai.onnx'}.{node.op.name}" for node in nodes if node.op.compute is None})
        if missing:
            raise UnsupportedError("E-OP-MISSING", None, f"no implementation of {', '.join(missing)}", hint="List them with candle-convert ops")
        if threads is not None and threads < 1:
            raise UsageError("E-RUN-THREADS", None, "a run needs at least one thread", found=threads)
        if graph.format == "onnx":
            check_types(copied_graph(graph, {}, typed=True))
        tensors = graph.weights.values()
        check_weights(graph.nbytes, sum(tensor.nbytes for tensor in tensors if not isinstance(tensor.storage, Held)))
        from .launch import cores

        self.device = device
        self._on_card = (device_memory, gpu_layers)
        self._lent = frozenset(lent)
        self._packed: dict[Any, Any] = {} if beside is None else beside._packed
        self.threads = threads or cores()
        self._native = native
        self._large = len(nodes) >= SMALL_GRAPH or sum(tensor.count for tensor in graph.weights.values()) >= SMALL_DATA
        fed = {value.name for value in graph.inputs}
        self._defaults = {name: tensor for name, tensor in graph.weights.items() if name in fed}
        if activations not in ("f32", "q8"):
            raise UsageError("E-RUN-ACTIVATIONS", None, f"activations are not rounded to {activations!r}", expected="f32 or q8")
        from .passes.linear import UseLinear

        graph = copied_graph(graph, {}, typed=True)
        UseLinear(activations, biases=False).run(graph)
        made = graph
        if simplify or (simplify is None and self._large):
            from .passes.channel_blocks import ChannelBlocks
            from .passes.half_products import HalfProducts
            from .passes.half_stretches import HalfStretches
            from .passes.integer_operators import IntegerOperators
            from .passes.real_operators import RealOperators
            from .passes.simplify import Simplify
            from .passes.unfused import Unfused

            made = copied_graph(graph, {}, typed=True)
            if device == "cpu":
                Unfused().run(made)
                IntegerOperators(contrib=True).run(made)
                RealOperators().run(made)
                HalfProducts().run(made)
            else:
                from .passes.few_bits import FewBits

                FewBits().run(made)
            UseLinear().run(made)
            Simplify(min(MOST_FOLDED, (available() or MOST_FOLDED) // 8), deferred=device == "cpu").run(made)
            if device == "cpu":
                HalfStretches().run(made)
                ChannelBlocks().run(made)
        self.program: Any = None
        self.program = self._program(made)
        self._names = [value.name for value in self.graph.inputs]
        self._places = self._fitting(list(range(len(self._names))))
        self._fallbacks: dict[str, np.ndarray] | None = None
        self._runs: dict[Any, Any] = {}
        self._plain = graph
        self._whole = self.program if made is graph else None

    def __repr__(self) -> str:
        names = [", ".join(value.name for value in values) for values in (self.get_inputs(), self.get_outputs())]
        return f"<Session {printable(f'{names[0][:200]} -> {names[1][:200]}')}, {self.device}, {counted(self.threads, 'thread')}>"

    def _program(self, graph: Graph) -> Any:
        if self.device == "cpu":
            from .program import of_graph

            return of_graph(graph, self._packed, self._lent)
        from .cuda.program import of_graph as on_device

        memory, layers = self._on_card
        return on_device(graph, self.device, memory, self._lent, layers, self.threads, self._packed)

    def get_inputs(self) -> list[Value]:
        """The inputs that have to be fed."""
        return [value for value in self.graph.inputs if value.name not in self.graph.weights]

    def get_outputs(self) -> list[Value]:
        """The outputs."""
        return list(self.graph.outputs)

    def run(self, names: Sequence[str] | None, feeds: Mapping[str, Any], *, clock: Clock | None = None) -> list[Any]:
        """Compute outputs by name (None or an empty sequence for all).

        Args:
            feeds: for each input an array (of numpy, torch, or anything that speaks DLPack); a list for a sequence; None for an empty optional.
            clock: is told how long every step took; those of a device are waited for one by one.

        Raises UsageError for inputs that are missing, unknown, or not what the model takes.
        """
        arrays = list(map(feeds.get, self._names)) if len(feeds) == len(self._names) else self._with_defaults(feeds)
        kinds = tuple([(array.dtype, array.shape) if type(array) is np.ndarray else None for array in arrays])
        run = self._runs.get(kinds)
        if run is None or clock is not None or current().chosen:
            found = self._first(feeds, clock, kinds)
        else:
            found = self.program.run([arrays[place] for place in self._places], run)
        return self._chosen(names, found) if names else found

    def repeated(self, name: str, feeds: Mapping[str, np.ndarray]) -> Callable[[], Any] | None:
        """What computes one output of the arrays of a run again and again, for what they hold then; None where that is not quicker than `run`.

        `run` has taken these arrays before. One thread at a time may call what is returned.
        """
        if self.device != "cpu" or not feeds.keys() >= set(self._names):
            return None
        from .program import Run
        from .repeating import repeated

        names = [value.name for value in self.graph.outputs]
        fitting = self._fitting([feeds[name] for name in self._names])
        return repeated(self.program, fitting, Run(self.threads, self._compiled(fitting)), names.index(name))

    def expect(self, others: Callable[[], Iterable[Mapping[str, Any]]]) -> None:
        """Say what may be fed later, instead of other lengths of symbolic dimensions: kernels for it are compiled with the first; on the CPU."""
        from .feeding import checked

        self.program.expecting.others = lambda feeds: (self._fitting(checked(self.graph, each, self._defaults)) for each in others())

    def prepare(self, feeds: Mapping[str, Any]) -> None:
        """Plan a run for the dtypes and shapes of some feeds, and compile what it needs and what other shapes do; on the CPU."""
        from .feeding import checked
        from .program import Run

        arrays = self._fitting(checked(self.graph, feeds, self._defaults))
        run = Run(self.threads, self._compiled(arrays))
        self.program.prepare(arrays, run)
        self.program.prepare_others(arrays, run)

    def _with_defaults(self, feeds: Mapping[str, Any]) -> list[Any]:
        """Feeds and defaults in the order of the inputs; nothing where they are not all. Defaults that the program does not ask for are left out."""
        if self._fallbacks is None or len(feeds) + len(self._fallbacks) != len(self._names) or not self._fallbacks.keys().isdisjoint(feeds):
            return []
        return [self._fallbacks[name] if name in self._fallbacks else feeds.get(name) for name in self._names]

    def _first(self, feeds: Mapping[str, Any], clock: Clock | None, kinds: tuple[Any, ...]) -> list[Any]:
        """Outputs for feeds that have to be looked at; others of these dtypes and shapes need not be."""
        from .feeding import checked
        from .program import Run

        arrays = checked(self.graph, feeds, self._defaults)
        fitting = self._fitting(self._kept(arrays, feeds))
        found = self._results(self.program, fitting, clock=clock)
        fed = [(feeds.get(name), array) for name, array in zip(self._names, arrays, strict=True) if name in feeds or name not in self._defaults]
        as_fed = all(one is array for one, array in fed)
        if self.device == "cpu" and self._defaults and self._fallbacks is None:
            asked = {self._names[place] for place in self._places}
            self._fallbacks = {name: tensor.numpy() if name in asked else UNASKED for name, tensor in self._defaults.items()}
        if self.device == "cpu" and kinds and None not in kinds and as_fed:
            if len(self._runs) >= MOST_SEEN:
                self._runs = {}
            self._runs[kinds] = Run(self.threads, self._compiled(fitting))
        return found

    def run_on_device(self, feeds: Mapping[str, Any], *, move: bool = True) -> list[Any]:
        """All outputs as arrays that stay on the device (`runtime.cuda.array.DeviceArray`), for feeds on the host or on the device.

        They speak DLPack and ``__cuda_array_interface__``, are fed to other runs without a copy, and are the caller's. What layers on the CPU
        compute is uploaded, unless `move` says that it stays there. Raises UsageError on the CPU.
        """
        from .feeding import checked

        if self.device == "cpu":
            raise UsageError("E-DEVICE-NAME", None, "this session runs on the CPU", expected="Session(graph, device='cuda')")
        arrays = checked(self.graph, feeds, self._defaults)
        return list(self.program.run(self._fitting(self._kept(arrays, feeds)), on_device=True, move=move))

    def run_with_taps(self, feeds: Mapping[str, Any], taps: str, on_tap: Callable[[str, Any], None]) -> list[Any]:
        """Compute all outputs, and hand the intermediate values whose name matches the pattern `taps` to `on_tap`.

        They come one by one while the run goes on, in the order of computation, each a copy, so that memory does not grow with their number.
        The model runs as it is in its file. A value inside a subgraph has the path to it before its name: the name of the node (of its first
        output where it has none), the attribute, and again for subgraphs below, as in ``loop/body/x``; it comes once for each iteration.
        A value inside a function has the name of the call before its own: ``call/x``. Sequences come as lists.
        """
        from .feeding import checked
        from .regex import compiled

        arrays = checked(self.graph, feeds, self._defaults)
        if self._whole is None:
            self._whole = self._program(self._plain)
        return self._results(self._whole, self._kept(arrays, feeds), compiled(taps), on_tap)

    def _results(
        self, program: Any, arrays: list[Any], taps: Searcher | None = None, on_tap: Callable[[str, Any], None] | None = None,
        clock: Clock | None = None,
    ) -> list[Any]:
        if self.device != "cpu":
            names = (value.name for node in nodes_below(self._plain) for value in node.outputs) if taps is not None else ()
            keep = None if taps is None else frozenset(name for name in names if name and taps.search(name))
            from .cuda.timed import timed

            with timed(clock):
                return list(program.run(arrays, keep=keep, on_tap=on_tap))
        from .program import Run

        native = self._compiled(arrays)
        end = time.monotonic() + current().time if "time" in current().chosen else math.inf
        found: list[Any] = program.run(arrays, Run(self.threads, native, taps, on_tap, end, clock))
        return found

    def _kept(self, arrays: list[Any], feeds: Mapping[str, Any]) -> list[Any]:
        """Defaults of inputs that are not fed stay tensors for a device, which uploads them once; for the host, device arrays are copied."""
        if self.device == "cpu":
            return [array.numpy() if getattr(array, "on_device", False) else array for array in arrays]
        if not self._defaults:
            return arrays
        names = [value.name for value in self.graph.inputs]
        return [self._defaults.get(name, array) if name not in feeds else array for name, array in zip(names, arrays, strict=True)]

    def _fitting(self, arrays: list[Any]) -> list[Any]:
        """Those of the inputs that simplifying has left."""
        if len(self.program.inputs) == len(arrays):
            return arrays
        left = {value.name for value in self.program.inputs}
        return [array for value, array in zip(self.graph.inputs, arrays, strict=True) if value.name in left]

    def _compiled(self, arrays: Sequence[Any]) -> bool:
        if self._native is None and not self._large:
            return sum(getattr(array, "size", 0) for array in arrays) >= SMALL_DATA
        return self._native is not False

    def _chosen(self, names: Sequence[str], found: Sequence[Any]) -> list[Any]:
        by_name = {value.name: result for value, result in zip(self.graph.outputs, found, strict=True)}
        unknown = [name for name in names if name not in by_name]
        if unknown:
            raise UsageError("E-RUN-OUTPUT", None, f"no output named {unknown[0]!r}", expected=", ".join(by_name), hint="get_outputs() lists them")
        return [by_name[name] for name in names]

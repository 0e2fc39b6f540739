"""Graphs of functions of tensors: a function is traced, and its plan becomes a graph with names.

What the function reads from outside, such as the parameters of a module, are weights of the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

import numpy as np

from ...nn.core.module import Module
from ...runtime.base.errors import UnsupportedError, UsageError
from ...runtime.ir.builder import Builder
from ...runtime.ir.domain import CANDLE, COMPLEX
from ...runtime.ir.graph import Graph, Node, Value
from ...runtime.ir.shape_inference import infer
from ...runtime.passes.lower.decomposition import decomposed
from ...runtime.passes.pattern.replace_nodes import rewrite
from ...runtime.passes.weights.rename_values import Rename
from ...runtime.tensor.stored_tensor import StoredTensor
from ...tensors.autograd.checkpoint import AFTER
from ...tensors.core.grad_mode import no_grad
from ...tensors.core.nested import flattened
from ...tensors.core.tensor import Tensor
from ...tensors.jit import Source, Trace
from .complex_parts import into_parts
from .symbolic_batch import with_symbolic_batch

BATCH = "batch"
"""Name of the symbolic dimension."""


class Recorded:
    """A function that was traced, and the graph of what it computed.

    Args:
        function: of tensors in nested lists and dictionaries.
        arguments: examples, which say dtypes and shapes.

    Attributes:
        graph: of ONNX's operators where ours have a decomposition; inputs are in the order of `sources`, arguments
            first; outputs are results, then values of `changed`.
        sources: what each input is.
        changed: tensors to which the function gives other values.
        results: number of outputs before those.
        counting: what counts the runs, as an optimizer its steps.
    """

    def __init__(self, function: Callable[..., Any], arguments: Sequence[Any]) -> None:
        tensors: list[Tensor] = []
        structure = flattened((tuple(arguments), {}), tensors)
        trace = Trace(function, structure, tensors)
        self.graph = trace.graph()
        infer(self.graph)
        rewrite(self.graph, _in_onnx)
        constants = _complex_constants(trace, self.graph)
        if constants or any(node.op.domain == COMPLEX for node in self.graph.nodes):
            into_parts(self.graph, constants)
            infer(self.graph)
        _require_real(self.graph, constants)
        order = [place for place, value in enumerate(self.graph.inputs) if value not in constants]
        order.sort(key=lambda place: _argument_first(trace.sources[place]))
        self.sources = [trace.sources[place] for place in order]
        self.graph.inputs = [self.graph.inputs[place] for place in order]
        self.changed: list[Tensor] = trace.changed
        self._merge_equal_inputs()
        self.results = len(self.graph.outputs) - len(self.changed)
        self.counting = trace.counting
        _separate_outputs(self.graph)

    def _merge_equal_inputs(self) -> None:
        """Let what is fed several times be one input."""
        first: dict[Any, Value] = {}
        instead: dict[Value, Value] = {}
        sources: list[Source] = []
        for value, source in zip(self.graph.inputs, self.sources, strict=True):
            what = next(each for each in (source.place, source.tensor, source.draw, value) if each is not None)
            kept = first.setdefault(what, value)
            if kept is value:
                sources.append(source)
            else:
                instead[value] = kept
                del self.graph.values[value.name]
        self.sources = sources
        self.graph.inputs = list(first.values())
        for node in self.graph.nodes:
            node.inputs = [value if value is None else instead.get(value, value) for value in node.inputs]

    def name_inputs(self, names: Sequence[str]) -> None:
        """Give the inputs names."""
        _rename(self.graph, self.graph.inputs, names)

    def name_outputs(self, names: Sequence[str]) -> None:
        """Give the outputs names."""
        _rename(self.graph, self.graph.outputs, names)

    def drop_outputs(self, tensors: Set[Tensor]) -> None:
        """Leave out what some tensors are changed to."""
        after = zip(self.graph.outputs[self.results :], self.changed, strict=True)
        kept = [(value, each) for value, each in after if each not in tensors]
        self.graph.outputs[self.results :] = [value for value, _ in kept]
        self.changed = [each for _, each in kept]

    def keep(self, places: Mapping[int, np.ndarray]) -> None:
        """Make weights of inputs, by their positions."""
        graph = self.graph
        for index, array in places.items():
            graph.weights[graph.inputs[index].name] = StoredTensor.of(array)
        graph.inputs = [value for index, value in enumerate(graph.inputs) if index not in places]
        self.sources = [source for index, source in enumerate(self.sources) if index not in places]


def _complex_constants(trace: Trace, graph: Graph) -> dict[Value, np.ndarray]:
    """The complex inputs that are neither arguments nor drawn nor changed, and their elements."""
    found: dict[Value, np.ndarray] = {}
    changed = set(map(id, trace.changed))
    for source, value in zip(trace.sources, graph.inputs, strict=True):
        fixed = source.place is None and source.draw is None and id(source.tensor) not in changed
        if fixed and value.dtype is not None and value.dtype.is_complex:
            found[value] = source.array(())
    return found


def _require_real(graph: Graph, constants: Mapping[Value, np.ndarray]) -> None:
    """Raise UnsupportedError for a graph in which elements are complex: ONNX has no operators of complex numbers."""

    def has_complex(values: Sequence[Value | None]) -> bool:
        return any(each is not None and each.dtype is not None and each.dtype.is_complex for each in values)

    if has_complex([each for each in (*graph.inputs, *graph.outputs) if each not in constants]):
        why = "the function takes or returns complex numbers, which ONNX cannot express"
        raise UnsupportedError("E-EXPORT", None, why, hint="Pass and return .real and .imag")
    for node in graph.nodes:
        if has_complex([*node.inputs, *node.outputs]):
            why = f"the function computes {node.op.name.removeprefix('Complex')} of complex numbers"
            raise UnsupportedError("E-EXPORT", None, f"{why}, which ONNX cannot express", hint="Use .real and .imag")


def _in_onnx(node: Node, build: Builder) -> bool:
    """Decompose a node of our operators; whether that was possible. The order of nodes is left to the runtime."""
    if node.op is AFTER:
        build.add("Identity", node.inputs[:1], outputs=node.outputs)
        return True
    return node.op.domain == CANDLE and decomposed(node, build)


def _argument_first(source: Source) -> tuple[bool, int]:
    return source.place is None, source.place or 0


def graph_of(
    function: Callable[..., Any],
    arguments: Sequence[Any],
    input_names: Sequence[str] = (),
    output_names: Sequence[str] = (),
    *,
    dynamic_batch: bool = False,
) -> Graph:
    """A module in evaluation mode, or a function of tensors, as a graph.

    Args:
        arguments: examples, which say dtypes and shapes: tensors, in lists and dictionaries too.
        input_names: of the tensors in their order; by default input, or input_0 and so on.
        output_names: by default output, or output_0 and so on.
        dynamic_batch: whether the first dim of inputs and outputs may have any length.

    Raises UsageError for functions that need values of their arguments, or for names that are too many or too few;
    UnsupportedError for functions that draw random numbers, compute with complex ones, or whose batch cannot be of any
    length.
    """
    found = _frozen(function, arguments)
    if dynamic_batch:
        longer = [_longer(argument) for argument in arguments]
        with_symbolic_batch(found.graph, _frozen(function, longer).graph, BATCH)
    found.name_inputs(names_of(input_names, len(found.graph.inputs), "input"))
    found.name_outputs(names_of(output_names, len(found.graph.outputs), "output"))
    return found.graph


def _frozen(function: Callable[..., Any], arguments: Sequence[Any]) -> Recorded:
    """The function's graph, whose inputs are the arguments."""
    modes = [(each, each.training) for each in function.modules()] if isinstance(function, Module) else []
    names: dict[Tensor, str] = {}
    if isinstance(function, Module):
        function.eval()
        names = {each: name for name, each in (*function.named_parameters(), *function.named_buffers())}
    try:
        with no_grad():
            found = Recorded(function, arguments)
    finally:
        for each, mode in modes:
            each.training = mode
    if found.changed:
        why = "the function changes tensors besides what it returns"
        raise UnsupportedError("E-EXPORT", None, why, hint="Export a step of training with cc.onnx.export_step()")
    given: list[str] = []
    kept: dict[int, np.ndarray] = {}
    for index, source in enumerate(found.sources):
        if source.draw is not None:
            why = "the function draws random numbers"
            raise UnsupportedError("E-EXPORT", None, why, hint="Pass them as an argument")
        given.append(found.graph.inputs[index].name)
        if source.place is None:
            kept[index] = source.array(())
            given[-1] = names.get(source.tensor, given[-1]) if source.tensor is not None else given[-1]
    found.name_inputs(unique(given))
    found.keep(kept)
    return found


def _longer(item: Any) -> Any:
    """An example with one row more."""
    if isinstance(item, dict):
        return {name: _longer(each) for name, each in item.items()}
    if isinstance(item, list | tuple):
        return type(item)([_longer(each) for each in item])
    array = item.array() if isinstance(item, Tensor) else np.asarray(item)
    if not array.ndim or not len(array):
        raise UsageError("E-EXPORT", None, f"an example of shape {list(array.shape)} does not have a batch")
    return np.concatenate([array, array[:1]])


def unique(names: Sequence[str]) -> list[str]:
    """Names that differ, of which some have numbers after them."""
    found: list[str] = []
    for name in names:
        full, count = name, 1
        while full in found:
            count += 1
            full = f"{name}_{count}"
        found.append(full)
    return found


def names_of(given: Sequence[str], count: int, word: str) -> list[str]:
    """Names that are given, of which there must be `count`, or made of a word and numbers."""
    names = list(given) or ([word] if count == 1 else [f"{word}_{index}" for index in range(count)])
    if len(names) != count:
        why = f"{len(names)} names are given for {count} {word}s"
        raise UsageError("E-EXPORT", None, why, expected=str(count))
    return names


def _rename(graph: Graph, values: Sequence[Value], names: Sequence[str]) -> None:
    """Give values names; others that have them get new ones."""
    wanted = {value.name: name for value, name in zip(values, names, strict=True)}
    taken = set(wanted.values())
    for name in graph.values:
        if name in taken and name not in wanted:
            other = name
            while other in taken or other in graph.values:
                other = f"{other}_"
            wanted[name] = other
            taken.add(other)
    Rename({old: new for old, new in wanted.items() if old != new}).run(graph)


def _separate_outputs(graph: Graph) -> None:
    """Let each output be a value of its own that a node computes."""
    build = Builder(graph)
    seen = {*graph.inputs}
    for index, value in enumerate(graph.outputs):
        if value in seen or value.name in graph.weights:
            graph.outputs[index] = copied = Value(build.name("output"), value.dtype, value.shape)
            graph.values[copied.name] = copied
            build.add("Identity", [value], outputs=[copied])
        seen.add(value)

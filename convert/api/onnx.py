"""ONNX models from Python: read, simplify, choose an opset, write; export modules and steps of training.

cc.onnx.read("net.onnx").simplify(max_fold="1MiB").to_opset(21).save("slim.onnx", external_data="auto")
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...runtime.base.errors import UsageError
from ...runtime.ir.graph import Graph
from ..write import pipeline
from ..write.conversion_options import Options
from ..write.plan import plan_graph
from . import convert

if TYPE_CHECKING:
    from ...nn.core.module import Module
    from ...optim import Optimizer
    from ...training.export.training_step import TrainingStep

__all__ = ["Network", "export", "export_step", "read", "write"]


class Network:
    """A graph that is changed in place; every method but `save` gives the network itself.

    Attributes:
        graph: the graph.
        opset: of ai.onnx that it will be written for, None for the lowest from 17 on that fits.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.opset: int | None = None

    def simplify(self, max_fold: str | int = "1MiB", skip: Iterable[str] = ()) -> Network:
        """Simplify: fold constants, fuse nodes, remove redundant ones.

        Args:
            max_fold: bytes that a folded constant may have beyond its inputs.
            skip: names of passes to leave out.

        Raises UsageError for a pass that there is not.
        """
        from ...formats.containers.onnx.opset_lowering import DEFAULT_OPSET
        from ...runtime.base.limits import size
        from ...runtime.passes.simplification import PASSES, Simplify

        left = frozenset(skip)
        unknown = sorted(left - set(PASSES))
        if unknown:
            raise UsageError("E-OPTION", None, f"unknown pass {unknown[0]!r}", hint=f"Passes: {', '.join(PASSES)}")
        newest = self.opset or max(self.graph.opsets.get("", DEFAULT_OPSET), DEFAULT_OPSET)
        Simplify(size(max_fold) if isinstance(max_fold, str) else max_fold, left, newest).run(self.graph)
        return self

    def to_opset(self, opset: int) -> Network:
        """Write for this opset; `save` raises UnsupportedError where the graph needs a newer one."""
        self.opset = opset
        return self

    def infer(self) -> Network:
        """Fill in dtypes and shapes of all values."""
        from ...runtime.ir.shape_inference import infer

        infer(self.graph)
        return self

    def extract(self, outputs: Iterable[str], inputs: Iterable[str] = ()) -> Network:
        """The part that computes some values, from others where they are named."""
        from ...runtime.ir.shape_inference import infer
        from ...runtime.passes.weights.extract_subgraph import extract

        infer(self.graph)
        self.graph = extract(self.graph, list(inputs), list(outputs))
        return self

    def rename(self, values: Mapping[str, str] | None = None, dims: Mapping[str, str | int] | None = None) -> Network:
        """Give values and symbolic dimensions other names; a number fixes a dimension."""
        from ...runtime.passes.weights.rename_values import Rename

        Rename(dict(values or {}), dict(dims or {})).run(self.graph)
        return self

    def save(
        self,
        path: str | os.PathLike[str],
        external_data: str = "auto",
        verify: str = "sample",
        force: bool | None = None,
    ) -> pipeline.Report:
        """Write an ONNX file.

        Args:
            external_data: whether tensors go into a file of their own: auto, never or always.
            verify: how much is read back and compared: none, sample or full.
            force: as of `convert`: an existing file is replaced when the new one is complete, unless this is False.
        """
        options = Options(to="onnx", external_data=external_data, opset=self.opset, verify=verify, force=force)
        return pipeline.execute(plan_graph(self.graph, Path(path), options))


def export(
    model: Any,
    args: Any,
    path: str | os.PathLike[str] | None = None,
    input_names: Sequence[str] = (),
    output_names: Sequence[str] = (),
    *,
    dynamic_batch: bool = False,
    opset: int | None = None,
) -> Network:
    """A module of `cc.nn` in evaluation mode, or a function of tensors, as a network; with a path also as a file.

        cc.onnx.export(model, x, "model.onnx", dynamic_batch=True)

    Args:
        args: an example of the argument, or a tuple of examples, which say dtypes and shapes.
        input_names, output_names: by default input and output, with numbers where there are several.
        dynamic_batch: whether the first dim of inputs may have any length.
        opset: of ai.onnx; None for the lowest from 17 on that fits.

    Raises UsageError for functions that need values of their arguments, UnsupportedError for functions that draw random
    numbers, compute with complex ones or change tensors, or whose batch cannot be of any length.
    """
    from ...training.export.function_graph import graph_of

    given = args if isinstance(args, tuple) else (args,)
    network = Network(graph_of(model, given, input_names, output_names, dynamic_batch=dynamic_batch))
    network.opset = opset
    if path is not None:
        network.save(path)
    return network


def export_step(
    function: Callable[..., Any],
    args: Sequence[Any],
    path: str | os.PathLike[str],
    model: Module,
    optimizer: Optimizer,
    input_names: Sequence[str] = (),
    output_names: Sequence[str] = (),
) -> TrainingStep:
    """Write a step of training as an ONNX file: forward, backward and update in one graph.

    Args:
        function: drops gradients, computes the loss of its arguments, calls backward and ``optimizer.step()``; its
            results become outputs.
        args: examples of the arguments, which say dtypes and shapes.
        model, optimizer: whose parameters, buffers and state have names in the graph.

    Returns what the file's inputs begin with, and the numbers of each step; see `TrainingStep`.
    """
    from ...training.export.training_step import step_of

    step = step_of(function, args, model, optimizer, input_names, output_names)
    Network(step.graph).save(path)
    return step


def write(graph: Graph, path: str | os.PathLike[str]) -> None:
    """Write a graph as an ONNX file."""
    Network(graph).save(path)


def read(path: str | os.PathLike[str]) -> Network:
    """A network of a file; its weights are read when they are needed. UsageError where the file holds weights only."""
    graph = convert.open(path)
    if not graph.outputs:
        raise UsageError("E-RUN-NODES", str(path), "holds weights only, without a graph", hint="Use an .onnx file")
    return Network(graph)


def __dir__() -> list[str]:
    return list(__all__)

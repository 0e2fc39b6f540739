"""ONNX models from Python: read, simplify, choose an opset, write.

cc.onnx.read("net.onnx").simplify(max_fold="1MiB").to_opset(21).save("slim.onnx", external_data="auto")
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from ...runtime.base.errors import UsageError
from ...runtime.ir.graph import Graph
from ..write import pipeline
from ..write.conversion_options import Options
from ..write.plan import plan_graph
from . import convert


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


def read(path: str | os.PathLike[str]) -> Network:
    """A network of a file; its weights are read when they are needed. UsageError where the file holds weights only."""
    graph = convert.open(path)
    if not graph.outputs:
        raise UsageError("E-RUN-NODES", str(path), "holds weights only, without a graph", hint="Use an .onnx file")
    return Network(graph)

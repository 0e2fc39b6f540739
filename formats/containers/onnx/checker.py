"""ONNX model checker: violations of the standard that do not prevent reading, and oddities."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ....runtime.base.errors import Error
from ....runtime.base.units import counted
from ....runtime.contract.format import Finding
from ....runtime.ir.function import inline, nodes_below
from ....runtime.ir.graph import Function, Graph, Node
from ....runtime.ir.op import Foreign
from ....runtime.ir.opset_upgrade import upgrade
from ....runtime.ir.shape_inference import Facts
from ....runtime.tensor.file import Source
from .opset_lowering import CannotError, forms, history
from .reader import NEWEST, read_graph
from .type_check import body_inputs, contradictions, declared_types, wrong_ranks
from .writer import ir_of_opsets

NAMED = 5
HOST_CODE = {"PyOp", "PyCustomOp", "PythonOp"}
"""Operators that call Python functions of the host program."""


def findings(source: Source) -> Iterator[Finding]:
    """All findings of `check` beyond errors that reading raises."""
    graph = read_graph(source)
    yield from _as_written(graph)
    declared = declared_types(graph)
    try:
        upgrade(graph)
        inline(graph)
        facts = Facts(typed=True)
        facts.infer(graph)
    except Error as error:
        yield Finding(error.code, "error", error.why, error.offset)
        return
    for value, shape in facts.stale:
        yield Finding(
            "W-ONNX-STALE",
            "warning",
            f"the file says shape {shape}, the nodes compute {value.shape}",
            member=value.name,
        )
    yield from contradictions(graph, declared)
    for node, why in facts.mistyped.items():
        yield Finding("E-ONNX-TYPE", "error", f"{node.label}: {why}", member=node.name or None)
    yield from wrong_ranks(graph)
    yield from body_inputs(graph, declared)
    for inner, node in _everything(graph):
        if node not in facts.mistyped and history(node.op.name, node.op.domain):
            try:
                next(forms(node, inner))
            except CannotError as error:
                yield Finding("E-ONNX-TYPE", "error", f"{node.label}: {error}", member=node.name or None)


def _as_written(graph: Graph) -> Iterator[Finding]:
    """Findings about the graph as stored, before opset upgrades."""
    nodes = list(nodes_below(graph))
    version, least = (graph.carried or {}).get("ir_version", 0), ir_of_opsets(graph.opsets)
    if version < least:
        yield Finding("W-ONNX-IR", "warning", f"is of IR version {version}, its opsets came with version {least}")
    used = {node.op.domain for node in nodes} | {""}
    for domain in graph.opsets.keys() - used:
        yield Finding(
            "W-ONNX-IMPORT", "info", f"imports opset {graph.opsets[domain]} of {domain!r}, which no node uses"
        )
    for value in graph.inputs:
        if value.dtype is None and not value.container:
            yield Finding("E-ONNX-TYPE", "error", "the input lacks a type", member=value.name)
    for value in graph.outputs:
        if value.dtype is None and not value.container:
            yield Finding("W-ONNX-TYPE", "warning", "the output lacks a type", member=value.name)
    names = Counter(node.name for node in nodes if node.name)
    twice = [name for name, count in names.items() if count > 1]
    if twice:
        yield Finding(
            "W-ONNX-NAMES",
            "info",
            f"{counted(len(twice), 'node name', verb='is')} used more than once: {_named(twice)}",
        )
    unknown = Counter(
        f"{node.op.domain}.{node.op.name}"
        for node in nodes
        if node.op.domain not in NEWEST and not isinstance(node.op, Function)
    )
    for name, count in sorted(unknown.items()):
        yield Finding(
            "W-ONNX-FOREIGN",
            "info",
            f"{counted(count, 'node', verb='uses')} the operator {name}, which is not in the standard",
        )
    needed = {value for node in nodes for value in node.inputs if value is not None} | set(graph.outputs)
    idle = [name for name in graph.weights if graph.values[name] not in needed]
    if idle and not graph.training:
        yield Finding("W-ONNX-UNUSED", "info", f"{counted(len(idle), 'weight', verb='is')} not used: {_named(idle)}")
    dead = [node.name or node.op.name for node in graph.nodes if not any(value in needed for value in node.outputs)]
    if dead and not graph.training:
        yield Finding(
            "W-ONNX-DEAD", "info", f"{counted(len(dead), 'node', verb='computes')} what nothing uses: {_named(dead)}"
        )


def _everything(graph: Graph) -> Iterator[tuple[Graph, Node]]:
    pending = [graph]
    while pending:
        inner = pending.pop()
        for node in inner.nodes:
            if not isinstance(node.op, Foreign | Function):
                yield inner, node
            pending += node.subgraphs


def dangers(source: Source) -> Iterator[Finding]:
    """Findings of `scan`: operators that run code on the host, and external files."""
    graph = read_graph(source)
    for path in graph.external_files:
        yield Finding("W-SCAN-BESIDE", "info", f"its tensors are also in {path}")
    for node in nodes_below(graph):
        if node.op.name in HOST_CODE:
            yield Finding(
                "W-SCAN-PYTHON",
                "warning",
                f"the operator {node.op.name} calls Python code where the model runs",
                member=node.name or None,
            )
    domains = sorted(
        {
            node.op.domain
            for node in nodes_below(graph)
            if node.op.domain not in NEWEST and not isinstance(node.op, Function)
        }
    )
    if domains:
        yield Finding(
            "W-SCAN-DOMAIN", "info", f"running it takes native libraries for the operators of {', '.join(domains)}"
        )


def _named(names: list[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(repr(name) for name in names[:NAMED]) + more

"""Loop-invariant states: Loop and Scan states that the body returns unchanged become captured values."""

from __future__ import annotations

from collections.abc import Iterator

from ...base.dataclass import dataclass
from ...ir.builder import Builder
from ...ir.graph import Graph, Node, Value
from ...ir.registry import onnx
from ..pattern.replace_nodes import graphs, substitute


@dataclass(frozen=True)
class HoistLoopInvariants:
    """Remove unchanged states from Loop and Scan, so that constant ones are seen as weights."""

    def run(self, graph: Graph) -> bool:
        """Return whether there were any."""
        changed = False
        for inner in graphs(graph):
            replaced: dict[Value, Value] = {}
            before, inner.nodes = inner.nodes, []
            build = Builder(inner)
            for node in before:
                build.keep(node)
                if node.op in (onnx.Loop, onnx.Scan):
                    for value, outer in self._freed(node):
                        changed = True
                        if value in inner.outputs:
                            build.add("Identity", [outer], outputs=[value])
                        elif value.name:
                            replaced[value] = outer
                            inner.values.pop(value.name, None)
            substitute(inner, replaced)
        return changed

    def _freed(self, node: Node) -> Iterator[tuple[Value, Value]]:
        """Remove the states; yield each removed output with the value that replaces it."""
        body = node.attributes["body"]
        first, given = (2, 1) if node.op is onnx.Loop else (0, 0)
        count = len(body.inputs) - first - (0 if node.op is onnx.Loop else int(node.attributes["num_scan_inputs"]))
        names = {name for inner in graphs(body) for name in inner.values}
        for index in reversed(range(count)):
            outer, own = node.inputs[first + index], body.inputs[first + index]
            if outer is None or outer.name in names or _source(body.outputs[given + index]) is not own:
                continue
            used = {value for below in graphs(body) for value in below.outputs} - {body.outputs[given + index]}
            if own in used:
                continue
            del node.inputs[first + index], body.inputs[first + index], body.outputs[given + index]
            body.values.pop(own.name, None)
            substitute(body, {own: outer})
            yield node.outputs.pop(index), outer


def _source(value: Value) -> Value:
    """The value after a chain of Identity nodes."""
    while value.producer is not None and value.producer.op is onnx.Identity and value.producer.inputs[0] is not None:
        value = value.producer.inputs[0]
    return value

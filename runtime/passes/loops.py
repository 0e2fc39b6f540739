"""Loops: states that every iteration hands on as they are become values from around the body, so that weights among them are seen as weights."""

from __future__ import annotations

from collections.abc import Iterator

from ..build import Builder
from ..graph import Graph, Node, Value
from ..record import dataclass
from .rewrite import graphs, substitute


@dataclass(frozen=True)
class FreeStates:
    """Take states out of Loop and Scan that their bodies do not change."""

    def run(self, graph: Graph) -> bool:
        """Whether there were any."""
        changed = False
        for inner in graphs(graph):
            replaced: dict[Value, Value] = {}
            before, inner.nodes = inner.nodes, []
            build = Builder(inner)
            for node in before:
                build.keep(node)
                if node.op.name in ("Loop", "Scan") and not node.op.domain:
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
        """Take the states out; each of the node's outputs that goes, with the value that it is."""
        body = node.attributes["body"]
        first, given = (2, 1) if node.op.name == "Loop" else (0, 0)
        count = len(body.inputs) - first - (0 if node.op.name == "Loop" else int(node.attributes["num_scan_inputs"]))
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
    """What a value is a name for."""
    while value.producer is not None and value.producer.op.name == "Identity" and value.producer.inputs[0] is not None:
        value = value.producer.inputs[0]
    return value

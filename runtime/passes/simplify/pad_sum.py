"""Sums of padded parts: gradients of the parts of a tensor, each between zeros, are concatenated instead of added."""

from __future__ import annotations

from ...base.dataclass import dataclass
from ...ir.builder import Builder
from ...ir.graph import Dim, Node, Value
from ...ir.registry import onnx
from ..pattern.pattern import call, var
from ..pattern.rewrite_rules import Match, Rule


@dataclass(frozen=True)
class Padded:
    """A tensor between zeros along one axis, of which elements `start` to `stop` are its own.

    Attributes:
        sum: the axis, and the shape of the sum of all parts.
    """

    value: Value
    sum: tuple[int, tuple[Dim, ...]]
    start: int
    stop: int


MOST_PARTS = 64
"""Parts of a sum that are looked at, so that long sums of other things cost little."""


def _side_by_side(match: Match, build: Builder) -> Value | None:
    parts = sorted(_parts(match), key=lambda part: part.start)
    if not parts:
        return None
    axis, shape = parts[0].sum
    ends = [0, *(part.stop for part in parts)]
    if any(part.sum != parts[0].sum for part in parts) or ends != [*(part.start for part in parts), shape[axis]]:
        return None
    return build.add("Concat", [part.value for part in parts], {"axis": axis})


def _parts(match: Match) -> list[Padded]:
    """The parts that a sum is made of; none where it has other terms."""
    found: list[Padded] = []
    left = list(match.root.inputs)
    while left and len(found) + len(left) <= MOST_PARTS:
        node = match.view.maker(left.pop())
        if node is None or node.op.domain or not _read_once(match, node):
            return []
        if node.op is onnx.Add:
            left += node.inputs
            continue
        part = _padded(match, node) if node.op is onnx.Pad else None
        if part is None:
            return []
        found.append(part)
    return [] if left else found


def _padded(match: Match, node: Node) -> Padded | None:
    value, (_, _, *others) = node.inputs[0], node.inputs
    pads = match.integers(node, 1)
    fill, axes = (*others, None, None)[:2]
    if value is None or value.shape is None or None in value.shape or pads is None or axes is not None:
        return None
    if node.attributes.get("mode", "constant") != "constant" or (fill is not None and match.view.number(fill) != 0):
        return None
    rank = len(value.shape)
    along = [axis for axis in range(rank) if pads[axis] or pads[axis + rank]]
    count = value.shape[along[0]] if len(along) == 1 else None
    if not isinstance(count, int) or min(pads) < 0:
        return None
    (axis,) = along
    start, behind = pads[axis], pads[axis + rank]
    whole = (*value.shape[:axis], start + count + behind, *value.shape[axis + 1 :])
    return Padded(value, (axis, whole), start, start + count)


def _read_once(match: Match, node: Node) -> bool:
    value = node.outputs[0]
    return len(match.view.readers[value]) == 1 and value not in match.view.results


RULES = (Rule("sum of padded parts", call("Add", var("a"), var("b")), _side_by_side),)

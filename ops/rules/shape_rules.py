"""Shape rules that many operators share, and the error for invalid inputs."""

from __future__ import annotations

from typing import Any

from ...runtime.base.errors import FormatError, UsageError
from ...runtime.ir.graph import Dim
from ...runtime.ir.shape_inference import CHECK, Inference, Shape


def shape_error(what: str, why: str, code: str = "E-OP-SHAPE", *, expected: Any = None) -> FormatError:
    """The error for a node of operator `what` whose attributes and inputs contradict each other."""
    return FormatError(code, None, f"{what}: {why}", expected=expected, hint=CHECK)


def model_error(why: str, code: str = "E-OP-VALUE", *, expected: Any = None, found: Any = None) -> UsageError:
    """The error for an attribute or input that an operator does not define."""
    return UsageError(code, None, why, expected=expected, found=found, hint="Correct the model")


def same_as_input(node: Inference) -> None:
    """Every output has the dtype and shape of input 0."""
    for index in range(len(node.node.outputs)):
        node.set(index, node.dtype(0), node.shape(0))


def broadcast(one: Shape | None, other: Shape | None) -> Shape | None:
    """The shape that two broadcast to (multidirectional, as NumPy's); None where a rank is unknown."""
    if one is None or other is None:
        return None
    if one == other:
        return one
    rank = max(len(one), len(other))
    left, right = (1,) * (rank - len(one)) + one, (1,) * (rank - len(other)) + other
    return tuple(broadcast_dim(first, second) for first, second in zip(left, right, strict=True))


def broadcast_dim(one: Dim, other: Dim) -> Dim:
    """The length that two broadcast to; None where that is unknown."""
    if one == other or other == 1:
        return one
    if one == 1:
        return other
    known = [dim for dim in (one, other) if isinstance(dim, int)]
    return known[0] if known else None


def broadcast_all(node: Inference) -> None:
    """Output 0 has the dtype of input 0 and the shape that all inputs broadcast to."""
    shape = node.shape(0)
    for index in range(1, len(node)):
        shape = broadcast(shape, node.shape(index))
    node.set(0, node.dtype(0), shape)


def refuse_outside(node: Inference, *indices: int) -> None:
    """Refuse inputs `indices` that do not broadcast to the shape of input 0."""
    x = node.shape(0)
    for index in indices:
        shape = node.shape(index)
        if x is None or shape is None:
            continue
        pairs = zip(reversed(x), reversed(shape), strict=False)
        wrong = any(isinstance(a, int) and isinstance(b, int) and b not in (1, a) for a, b in pairs)
        if len(shape) > len(x) or wrong:
            node.fail(f"input {index} of shape {shape} does not broadcast to {x}")


def broadcast_to_input(node: Inference) -> None:
    """Every output has the dtype and shape of input 0, to which the other inputs broadcast."""
    refuse_outside(node, *range(1, len(node)))
    same_as_input(node)


def axis_of(node: Inference, name: str, rank: int, *, inclusive: bool = False) -> int:
    """An axis attribute as a number from 0; `inclusive` allows the rank itself, which is after the last dimension."""
    axis = int(node.attributes[name])
    if not -rank <= axis < rank + inclusive:
        node.fail(f"{name} {axis} is outside a tensor of rank {rank}")
    return axis + rank if axis < 0 else axis


def along_axis(node: Inference) -> None:
    """Every output has the dtype and shape of input 0, which has the attribute `axis`."""
    shape = node.shape(0)
    if shape is not None:
        axis_of(node, "axis", len(shape))
    same_as_input(node)

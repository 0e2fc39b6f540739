"""Split: a tensor divided along an axis."""

from __future__ import annotations

import numpy as np

from ...runtime.base.units import counted
from ...runtime.ir.builder import Builder
from ...runtime.ir.call import Call
from ...runtime.ir.graph import Node
from ...runtime.ir.op import Trait, case, op, upgrade
from ...runtime.ir.shape_inference import Inference
from ..rules.axes import axis_in, axis_of, constants, elements, input_error


def infer_split(node: Inference) -> None:
    """The lengths given, or equal ones; elements of 1-D integers stay known."""
    shape, count, asked = node.shape(0), len(node.node.outputs), node.attributes["num_outputs"]
    if asked is not None and asked != count:
        node.fail(f"num_outputs is {asked:,}, the node has {counted(count, 'output')}")
    if shape is None:
        for index in range(count):
            node.set(index, node.dtype(0), None)
        return
    axis = axis_of(node, node.attributes["axis"], len(shape))
    lengths, length = elements(node, 1), shape[axis]
    if node.value(1) is None and isinstance(length, int):
        lengths = equal_parts(length, count)
    lengths = (None,) * count if lengths is None else lengths
    numbers = constants(lengths)
    if len(lengths) != count or (
        numbers is not None and isinstance(length, int) and (sum(numbers) != length or min(numbers) < 0)
    ):
        node.fail(f"parts of {list(lengths)} for {counted(count, 'output')} and a length of {length}")
    data, start = node.data(0) if len(shape) == 1 else None, 0
    for index, part in enumerate(lengths):
        piece = data[start : start + numbers[index]] if data is not None and numbers is not None else None
        start += numbers[index] if numbers is not None else 0
        node.set(index, node.dtype(0), (*shape[:axis], part, *shape[axis + 1 :]), data=piece)


def equal_parts(length: int, count: int) -> tuple[int, ...]:
    """`count` lengths that make up `length`: equal ones, the last ones shorter."""
    each = -(-length // count)
    return tuple(max(0, min(each, length - each * index)) for index in range(count))


@op(
    "Split",
    since=18,
    types="tensor i64 -> *",
    traits=(Trait.MOVES,),
    infer=infer_split,
    examples=[
        case("f32[6,2]", outputs=2, num_outputs=2),
        case("f32[2,7]", outputs=3, axis=1, num_outputs=3),
        case("f32[2,6]", np.array([2, 4]), outputs=2, axis=-1),
        case("i64[5]", np.array([0, 5]), outputs=2),
        case("string[3,2]", outputs=3, num_outputs=3),
        case("f32[0,4]", outputs=2, num_outputs=2, axis=1),
    ],
)
def split(
    x: np.ndarray, lengths: np.ndarray | None = None, *, axis: int = 0, num_outputs: int | None = None, call: Call
) -> tuple[np.ndarray, ...]:
    """Parts along `axis` of the lengths given, or equal ones of which the last may be shorter; views."""
    along, count = axis_in("Split", axis, x.ndim), len(call.used_outputs)
    if num_outputs is not None and num_outputs != count:
        raise input_error(
            "Split", "num_outputs is not the number of outputs", "E-OP-ATTRIBUTE", expected=count, found=num_outputs
        )
    parts = equal_parts(x.shape[along], count) if lengths is None else tuple(lengths.reshape(-1).tolist())
    if sum(parts) != x.shape[along] or len(parts) != count or min(parts) < 0:
        why = "the parts do not make up the input"
        raise input_error("Split", why, expected=f"{count} of {x.shape[along]} in all", found=list(parts))
    return tuple(np.split(x, np.cumsum(parts)[:-1], axis=along))


@upgrade(split, below=2)
def lengths_were_of_the_dtype_of_the_input(node: Node, build: Builder) -> None:
    """Cast lengths to i64: in opset 1 they could be an input of the data's dtype."""
    if len(node.inputs) > 1:
        node.inputs[1] = build.add("Cast", [node.inputs[1]], {"to": 7})
        build.keep(node)


@upgrade(split, below=13)
def lengths_were_an_attribute(node: Node, build: Builder) -> None:
    """Before opset 13 the lengths were an attribute."""
    given = node.attributes.pop("split", None)
    if given is not None:
        node.inputs[1:] = [build.constant(given)]


@upgrade(split, below=18)
def outputs_were_counted(node: Node, build: Builder) -> None:
    """Before opset 18 the number of equal parts was that of the outputs."""
    if len(node.inputs) < 2 or node.inputs[1] is None:
        node.attributes["num_outputs"] = len(node.outputs)

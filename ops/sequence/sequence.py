"""Sequence operators. A sequence is a list of arrays of one dtype and is never changed in place."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...runtime.base.units import counted
from ...runtime.ir.call import Call
from ...runtime.ir.graph import Graph
from ...runtime.ir.op import Trait, case, op
from ...runtime.ir.shape_inference import Inference, Shape
from ...runtime.tensor.dtype import F32, I64
from ..cast.cast import element_type
from ..control.if_else import either
from ..control.iteration import Iterations, outputs_of, taken_over
from ..rules.axes import axis_of, input_error

SEQUENCE = ("sequence",)


def _place(operator: str, position: np.ndarray | None, last: int, absent: int) -> int:
    """A position from 0 to `last`; negative ones count from `last + 1`."""
    if position is None:
        return absent
    at = int(position.reshape(-1)[0]) if position.size == 1 else last + 1
    length = last + 1 if operator != "SequenceInsert" else last
    if not -length <= at <= last:
        why = "the position does not exist"
        raise input_error(operator, why, "E-OP-INDEX", expected=f"from {-length} to {last}", found=position.tolist())
    return at + length if at < 0 else at


def infer_sequence_construct(node: Inference) -> None:
    """Infer a sequence of tensors of the inputs' dtype; lengths in which they differ are unknown."""
    shape = node.shape(0)
    for index in range(1, len(node)):
        shape = either(shape, node.shape(index))
    dtypes = {node.dtype(index) for index in range(len(node))} - {None}
    if len(dtypes) > 1:
        node.fail("the tensors differ in dtype")
    node.set(0, next(iter(dtypes), None), shape, container=SEQUENCE)


@op(
    "SequenceConstruct",
    since=11,
    types="integer+ieee+complex+bool+string*",
    infer=infer_sequence_construct,
    examples=[case("f32[2,3]", "f32[2,3]"), case("i64[2]"), case("f32[0]", "f32[3]")],
)
def sequence_construct(*inputs: np.ndarray) -> list[np.ndarray]:
    """The tensors as a sequence."""
    if len({item.dtype for item in inputs}) > 1:
        why = "the tensors differ in dtype"
        raise input_error("SequenceConstruct", why, "E-OP-DTYPE", found=", ".join(str(item.dtype) for item in inputs))
    return list(inputs)


def infer_sequence_empty(node: Inference) -> None:
    """A sequence of the dtype asked for."""
    asked = node.attributes["dtype"]
    node.set(0, F32 if asked is None else element_type(asked), None, container=SEQUENCE)


@op("SequenceEmpty", since=11, types="", infer=infer_sequence_empty, examples=[case(), case(dtype=7)])
def sequence_empty(*, dtype: int | None = None) -> list[np.ndarray]:
    """A sequence of no tensors; of f32 where nothing is said."""
    if dtype is not None:
        element_type(dtype)
    return []


def infer_sequence_at(node: Inference) -> None:
    """A tensor as those of the sequence."""
    node.set(0, node.dtype(0), node.shape(0))


@op(
    "SequenceAt",
    since=11,
    types="sequence index",
    infer=infer_sequence_at,
    examples=[case(["f32[2,3]", "f32[2,3]"], np.array(-1)), case(["i64[2]"], np.array(0, np.int32))],
)
def sequence_at(sequence: list[np.ndarray], position: np.ndarray) -> np.ndarray:
    """The tensor at an index; negative indices count from the end."""
    return sequence[_place("SequenceAt", position, len(sequence) - 1, 0)]


def infer_sequence_erase(node: Inference) -> None:
    """A sequence as the first input."""
    node.set(0, node.dtype(0), node.shape(0), container=SEQUENCE)


@op(
    "SequenceErase",
    since=11,
    types="sequence index",
    infer=infer_sequence_erase,
    examples=[case(["f32[2]", "f32[3]", "f32[4]"], np.array(1)), case(["f32[2]", "f32[3]"])],
)
def sequence_erase(sequence: list[np.ndarray], position: np.ndarray | None = None) -> list[np.ndarray]:
    """Remove the tensor at a position, by default the last."""
    if not sequence:
        raise input_error("SequenceErase", "the sequence is empty", "E-OP-INDEX")
    at = _place("SequenceErase", position, len(sequence) - 1, len(sequence) - 1)
    return sequence[:at] + sequence[at + 1 :]


def infer_sequence_insert(node: Inference) -> None:
    """Infer a sequence of tensors; lengths in which the new one differs from the others are unknown."""
    if node.dtype(0) is not None and node.dtype(1) is not None and node.dtype(0) is not node.dtype(1):
        node.fail(f"a tensor of {node.dtype(1)} in a sequence of {node.dtype(0)}")
    node.set(0, node.dtype(0) or node.dtype(1), either(node.shape(0), node.shape(1)), container=SEQUENCE)


@op(
    "SequenceInsert",
    since=11,
    types="sequence integer+ieee+complex+bool+string index",
    infer=infer_sequence_insert,
    examples=[
        case(["f32[2]", "f32[3]"], "f32[4]"),
        case(["f32[2]", "f32[3]"], "f32[4]", np.array(0)),
        case(["i64[2]", "i64[3]"], "i64[4]", np.array(-1)),
    ],
)
def sequence_insert(
    sequence: list[np.ndarray], tensor: np.ndarray, position: np.ndarray | None = None
) -> list[np.ndarray]:
    """Insert one tensor at a position, by default at the end."""
    at = _place("SequenceInsert", position, len(sequence), len(sequence))
    if sequence and sequence[0].dtype != tensor.dtype:
        why = "the tensor is of another dtype"
        raise input_error("SequenceInsert", why, "E-OP-DTYPE", expected=sequence[0].dtype, found=tensor.dtype)
    return [*sequence[:at], tensor, *sequence[at:]]


def infer_sequence_length(node: Inference) -> None:
    """A scalar."""
    node.set(0, I64, ())


@op("SequenceLength", since=11, types="sequence", infer=infer_sequence_length, examples=[case(["f32[2]", "f32[3]"])])
def sequence_length(sequence: list[np.ndarray]) -> np.ndarray:
    """The number of tensors, an i64 scalar."""
    return np.array(len(sequence), np.int64)


def infer_concat_from_sequence(node: Inference) -> None:
    """Infer the tensors' shape: the length of the axis is unknown, or a new axis is added."""
    shape = node.shape(0)
    if shape is None:
        node.set(0, node.dtype(0), None)
        return
    new = bool(node.attributes["new_axis"])
    axis = axis_of(node, node.attributes["axis"], len(shape) + new)
    result: Shape = (*shape[:axis], None, *shape[axis + (not new) :])
    node.set(0, node.dtype(0), result)


@op(
    "ConcatFromSequence",
    since=11,
    types="sequence",
    infer=infer_concat_from_sequence,
    examples=[
        case(["f32[2,3]", "f32[1,3]"], axis=0),
        case(["f32[2,3]", "f32[2,3]"], axis=-1, new_axis=1),
        case(["i64[2]", "i64[0]"], axis=-1),
    ],
)
def concat_from_sequence(sequence: list[np.ndarray], *, axis: int, new_axis: int = 0) -> np.ndarray:
    """The tensors one after another along `axis`, or stacked along a new one."""
    if not sequence:
        raise input_error("ConcatFromSequence", "the sequence is empty")
    rank = sequence[0].ndim + bool(new_axis)
    if not -rank <= axis < rank:
        why = "the axis does not exist"
        raise input_error("ConcatFromSequence", why, "E-OP-AXIS", expected=f"from {-rank} to {rank - 1}", found=axis)
    try:
        return np.stack(sequence, axis) if new_axis else np.concatenate(sequence, axis)
    except ValueError as error:
        raise input_error(
            "ConcatFromSequence", "the tensors do not fit together", found=[list(item.shape) for item in sequence]
        ) from error


def infer_sequence_map(node: Inference) -> None:
    """Infer sequences of tensors of the dtypes and shapes that the body returns."""
    body = node.subgraph("body")
    if len(body.inputs) != len(node) or len(body.outputs) != len(node.node.outputs):
        node.fail(
            f"its body has {counted(len(body.inputs), 'input')} and {counted(len(body.outputs), 'output')}, "
            "which are not those of the node"
        )
    for index, inner in enumerate(body.inputs):
        outer = node.value(index)
        container = inner.container
        taken_over(inner, outer, True)
        inner.container = container
    node.infer_subgraph(body)
    for index, value in enumerate(body.outputs):
        node.set(index, value.dtype, value.shape, container=SEQUENCE)


@op(
    "SequenceMap",
    since=17,
    types="sequence integer+ieee+complex+bool+sequence+string** -> *",
    traits=(Trait.LOOP, Trait.KEEPS_F32),
    infer=infer_sequence_map,
)
def sequence_map(sequence: list[np.ndarray], *others: Any, body: Graph, call: Call) -> tuple[list[Any], ...]:
    """The body applied to each tensor of the sequence, and to those of other sequences or the same other tensors."""
    for item in others:
        if isinstance(item, list) and len(item) != len(sequence):
            raise input_error("SequenceMap", "the sequences differ in length", expected=len(sequence), found=len(item))
    results = Iterations("SequenceMap", body.outputs)
    for index, tensor in enumerate(sequence):
        inputs = [tensor, *(item[index] if isinstance(item, list) else item for item in others)]
        results.add(outputs_of("SequenceMap", call, call.run(body, inputs), len(body.outputs)))
    return tuple(results.kept)

"""Gather, GatherElements, GatherND: elements by index."""

from __future__ import annotations

import numpy as np

from ...runtime.base.units import counted
from ...runtime.ir.graph import Dim
from ...runtime.ir.op import Trait, case, op
from ...runtime.ir.shape_inference import Inference
from ...runtime.tensor.weight_array import Blocks
from ..rules.axes import axis_in, axis_of, constants, input_error


def infer_gather(node: Inference) -> None:
    """Dims of the indices in place of the axis; elements of 1-D integers stay known."""
    shape, indices, axis = node.shape(0), node.shape(1), node.attributes["axis"]
    if shape is None:
        node.set(0, node.dtype(0), None)
        return
    at = axis_of(node, axis, len(shape))
    if indices is None:
        node.set(0, node.dtype(0), None)
        return
    known, wanted = node.data(0), constants(node.data(1))
    data = None
    if known is not None and wanted is not None and len(shape) == 1 and len(indices) <= 1:
        if any(not -len(known) <= index < len(known) for index in wanted):
            node.fail(f"indices {list(wanted)} are outside of {counted(len(known), 'element')}")
        data = [known[index] for index in wanted]
    node.set(0, node.dtype(0), (*shape[:at], *indices, *shape[at + 1 :]), data=data)


def checked(operator: str, indices: np.ndarray, length: int) -> None:
    """UsageError where an index is outside of an axis of that length."""
    if indices.size and not (-length <= indices.min() and indices.max() < length):
        raise input_error(
            operator,
            "an index is outside of the axis",
            "E-OP-INDEX",
            expected=f"from {-length} to {length - 1}",
            found=f"{indices.min()} to {indices.max()}",
        )


@op(
    "Gather",
    since=13,
    types="tensor index",
    traits=(Trait.LOOKUP, Trait.MOVES),
    weights={0: 0},
    infer=infer_gather,
    stored=True,
    examples=[
        case("f32[4,3]", np.array([[0, -1], [2, 2]])),
        case("f32[4,3]", np.array([2, 0], np.int32), axis=1),
        case("i64[4]", np.array(2)),
        case("string[3,2]", np.array([1]), axis=-1),
        case("f32[4,3]", np.zeros((0, 2), np.int64)),
        case("f32[4,0]", np.array([1, 3])),
    ],
)
def gather(data: np.ndarray | Blocks, indices: np.ndarray, *, axis: int = 0) -> np.ndarray:
    """Entries of `data` along `axis`; negative indices count from the back. Of quantized data, those alone are
    decoded."""
    at = axis_in("Gather", axis, data.ndim)
    checked("Gather", indices, data.shape[at])
    if isinstance(data, Blocks):
        if at == 0 and data.ndim > 1:
            return data.take(indices)
        data = data.numpy()
    return np.asarray(np.take(data, indices, at))


def infer_gather_elements(node: Inference) -> None:
    """The shape of the indices."""
    shape, indices = node.shape(0), node.shape(1)
    if shape is not None and indices is not None and len(shape) != len(indices):
        node.fail(f"the data has {counted(len(shape), 'dim')}, the indices have {len(indices)}")
    if shape is not None:
        axis_of(node, node.attributes["axis"], len(shape))
    node.set(0, node.dtype(0), indices)


def positions(operator: str, shape: tuple[int, ...], indices: np.ndarray, axis: int) -> tuple[np.ndarray, ...]:
    """Index arrays of the elements of a tensor of that shape that `indices` name along an axis."""
    at = axis_in(operator, axis, len(shape))
    if indices.ndim != len(shape) or any(length > shape[i] for i, length in enumerate(indices.shape) if i != at):
        raise input_error(
            operator, "the indices are longer than the data", expected=list(shape), found=list(indices.shape)
        )
    checked(operator, indices, shape[at])
    index = list(np.ogrid[tuple(slice(length) for length in indices.shape)])
    index[at] = indices
    return tuple(index)


@op(
    "GatherElements",
    since=13,
    types="tensor index",
    traits=(Trait.LOOKUP, Trait.MOVES),
    infer=infer_gather_elements,
    examples=[
        case("f32[3,4]", np.array([[0, 2, 1, 0], [2, -1, 0, 1]])),
        case("f32[3,4]", np.array([[3], [0], [-4]], np.int32), axis=-1),
        case("string[2,2]", np.array([[1, 0]])),
        case("f32[3,4]", np.zeros((0, 4), np.int64)),
    ],
)
def gather_elements(data: np.ndarray, indices: np.ndarray, *, axis: int = 0) -> np.ndarray:
    """One element for each index: the position is the index's own, but for `axis`, where it is the index."""
    return np.asarray(data[positions("GatherElements", data.shape, indices, axis)])


def infer_gather_nd(node: Inference) -> None:
    """The dims of the indices but the last, and those that the tuples leave."""
    shape, indices, batch = node.shape(0), node.shape(1), node.attributes["batch_dims"]
    depth = indices[-1] if indices else None
    if shape is None or indices is None or not isinstance(depth, int):
        node.set(0, node.dtype(0), None)
        return
    if not 0 < depth <= len(shape) - batch or batch >= len(indices):
        node.fail(f"tuples of {depth} indices with {batch} batch dims into {counted(len(shape), 'dim')}")
    shared: list[Dim] = [
        one if isinstance(one, int) else other for one, other in zip(shape[:batch], indices[:batch], strict=True)
    ]
    node.set(0, node.dtype(0), (*shared, *indices[batch:-1], *shape[batch + depth :]))


def tuple_positions(
    operator: str, shape: tuple[int, ...], indices: np.ndarray, batch: int = 0
) -> tuple[np.ndarray, ...]:
    """Index arrays for tuples of indices in the last axis of `indices`."""
    depth = indices.shape[-1] if indices.ndim else 0
    if not 0 <= batch < indices.ndim or not 0 < depth <= len(shape) - batch or indices.shape[:batch] != shape[:batch]:
        raise input_error(
            operator, "the tuples of indices do not fit the data", expected=list(shape), found=list(indices.shape)
        )
    for axis in range(depth):
        checked(operator, indices[..., axis], shape[batch + axis])
    shared = np.ogrid[tuple(slice(length) for length in indices.shape[:-1])][:batch] if indices.ndim > 1 else ()
    return (*shared, *(indices[..., axis] for axis in range(depth)))


@op(
    "GatherND",
    since=13,
    types="tensor i64",
    traits=(Trait.LOOKUP, Trait.MOVES),
    infer=infer_gather_nd,
    examples=[
        case("f32[3,4]", np.array([[0, 1], [-1, 3]])),
        case("f32[3,4,2]", np.array([[1], [0]])),
        case("f32[2,3,4]", np.array([[1], [2]]), batch_dims=1),
        case("string[2,2]", np.array([[0, 1]])),
        case("f32[3,4]", np.zeros((0, 2), np.int64)),
    ],
)
def gather_nd(data: np.ndarray, indices: np.ndarray, *, batch_dims: int = 0) -> np.ndarray:
    """Entries of `data` by tuples of indices, which are the last axis of `indices`; the first `batch_dims` axes are
    common to both."""
    return np.asarray(data[tuple_positions("GatherND", data.shape, indices, batch_dims)])

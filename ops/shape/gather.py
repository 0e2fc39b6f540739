"""Taking elements by index: Gather, GatherElements, GatherND."""

from __future__ import annotations

import numpy as np

from ...runtime.errors import UsageError
from ...runtime.infer import Inference
from ...runtime.op import case, op
from ..rules import axis_of

CHECK = "Check the indices fed to the model"


def checked(indices: np.ndarray, length: int, what: str) -> np.ndarray:
    """Indices from 0, negative ones counted from the end; UsageError for those outside."""
    if indices.size and (int(indices.min()) < -length or int(indices.max()) >= length):
        far = int(indices.min()) if int(indices.min()) < -length else int(indices.max())
        raise UsageError("E-OP-INDEX", None, f"{what} has index {far} in a dimension of length {length}", hint=CHECK)
    return np.where(indices < 0, indices + length, indices) if indices.size and int(indices.min()) < 0 else indices


def _gather(node: Inference) -> None:
    shape, indices = node.shape(0), node.shape(1)
    if shape is None or indices is None:
        node.set(0, node.dtype(0), None)
        return
    if not shape:
        node.refuse("its data is a scalar")
    axis = axis_of(node, "axis", len(shape))
    data, places = node.data(0), node.data(1)
    taken = None
    if len(shape) == 1 and len(indices) <= 1 and data is not None and places is not None:
        length = len(data)
        if any(isinstance(place, int) and not -length <= place < length for place in places):
            node.refuse(f"an index is outside its {length} elements")
        taken = [data[place] if isinstance(place, int) else None for place in places]
    node.set(0, node.dtype(0), (*shape[:axis], *indices, *shape[axis + 1 :]), data=taken)


@op(
    "Gather", since=13, infer=_gather,
    examples=[
        case("f32[5,3]", [[0, 2], [-1, 4]]), case("f32[2,4]", np.array(3), axis=1), case("i64[4]", [1], axis=-1),
        case("f32[3,2]", np.zeros((0, 2), np.int64)),
    ],
)
def gather(data: np.ndarray, indices: np.ndarray, *, axis: int = 0) -> np.ndarray:
    """Slices of `data` along `axis`, one for each index."""
    return np.take(data, checked(indices, data.shape[axis], "Gather"), axis=axis)


def _elements(node: Inference) -> None:
    node.set(0, node.dtype(0), node.shape(1))


@op("GatherElements", since=13, infer=_elements, examples=[case("f32[3,3]", [[1, 2, 0], [2, 0, -1]]), case("f32[2,3]", [[0, -1], [2, 2]], axis=1)])
def gather_elements(data: np.ndarray, indices: np.ndarray, *, axis: int = 0) -> np.ndarray:
    """The element at each place of `indices`, moved along `axis` to that index."""
    if indices.ndim != data.ndim:
        raise UsageError("E-OP-INDEX", None, f"GatherElements has data of rank {data.ndim} and indices of rank {indices.ndim}", hint=CHECK)
    region = tuple(slice(None) if place == axis % data.ndim else slice(length) for place, length in enumerate(indices.shape))
    return np.take_along_axis(data[region], checked(indices, data.shape[axis], "GatherElements").astype(np.intp), axis)


def _nd(node: Inference) -> None:
    shape, indices, batch = node.shape(0), node.shape(1), node.attributes["batch_dims"]
    if shape is None or indices is None or not indices or not isinstance(indices[-1], int):
        node.set(0, node.dtype(0), None)
        return
    if batch + indices[-1] > len(shape):
        node.refuse(f"indices of {indices[-1]} dimensions, behind {batch} of the batch, in a tensor of rank {len(shape)}")
    node.set(0, node.dtype(0), (*indices[:-1], *shape[batch + indices[-1] :]))


@op(
    "GatherND", since=13, infer=_nd,
    examples=[case("f32[2,2]", [[0, 0], [1, -1]]), case("f32[2,3,4]", [[[1]], [[0]]], batch_dims=1), case("f32[2,3]", [[1]])],
)
def gather_nd(data: np.ndarray, indices: np.ndarray, *, batch_dims: int = 0) -> np.ndarray:
    """Slices of `data` at the index tuples in the last dimension of `indices`, batch by batch."""
    depth = indices.shape[-1]
    if indices.shape[:batch_dims] != data.shape[:batch_dims] or batch_dims + depth > data.ndim:
        raise UsageError("E-OP-INDEX", None, f"GatherND has indices {list(indices.shape)} for data {list(data.shape)}", hint=CHECK)
    batch = np.ix_(*(np.arange(length) for length in indices.shape[:batch_dims]))
    spread = [place.reshape(*place.shape, *(1,) * (indices.ndim - 1 - batch_dims)) for place in batch]
    places = [checked(indices[..., part], data.shape[batch_dims + part], "GatherND") for part in range(depth)]
    return data[(*spread, *places)] if spread or places else np.broadcast_to(data, (*indices.shape[:-1], *data.shape)).copy()

"""ScatterElements, Scatter, ScatterND, TensorScatter: elements written by index."""

from __future__ import annotations

import numpy as np

from ...runtime.base.units import counted
from ...runtime.ir.builder import Builder
from ...runtime.ir.graph import Node
from ...runtime.ir.op import Trait, case, op, upgrade
from ...runtime.ir.shape_inference import Inference
from ..rules.axes import axis_in, axis_of, input_error
from ..rules.precision import is_narrow
from .gather import positions, tuple_positions

REDUCTIONS: dict[str, np.ufunc] = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def as_the_data(node: Inference) -> None:
    """The data's dtype and shape; an axis has to exist, and indices have to be of the data's rank."""
    shape, axis = node.shape(0), node.attributes.get("axis")
    if shape is not None and axis is not None:
        axis_of(node, axis, len(shape))
    node.set(0, node.dtype(0), shape)


def written(
    operator: str, data: np.ndarray, index: tuple[np.ndarray, ...], updates: np.ndarray, reduction: str
) -> np.ndarray:
    """A copy of `data` with updates at an index, or combined with what is there; of several for one position without
    reduction the last one stays."""
    if reduction == "none":
        result = data.copy()
        result[index] = updates
        return result
    if reduction not in REDUCTIONS:
        raise input_error(
            operator, "unknown reduction", "E-OP-ATTRIBUTE", expected=", ".join(("none", *REDUCTIONS)), found=reduction
        )
    wide = data.astype(np.float32) if is_narrow(data) else data.copy()
    with np.errstate(all="ignore"):
        REDUCTIONS[reduction].at(wide, index, updates.astype(wide.dtype, copy=False))
    return wide.astype(data.dtype, copy=False)


UPDATES = np.array([[0, 2, 1], [-1, 0, 2]])


@op(
    "ScatterElements",
    since=18,
    types="T=tensor index T",
    traits=(Trait.MOVES,),
    infer=as_the_data,
    examples=[
        case("f32[3,4]", UPDATES, "f32[2,3]"),
        case("f32[3,4]", np.array([[1], [3]], np.int32), "f32[2,1]", axis=1),
        case("f32[3,4]", np.array([[1, 1, 1, 1], [1, 0, 1, 2]]), "f32[2,4]", reduction="add"),
        case("f32[3,2]", np.array([[0, 0], [0, -1]]), "f32[2,2]", axis=-2, reduction="mul"),
        case("i64[5]", np.array([1, 1, 4]), "i64[3]", reduction="max"),
        case("f64[5]", np.array([1, 1, 4]), "f64[3]", reduction="min"),
        case("string[3]", np.array([2]), "string[1]"),
        case("f32[3,4]", np.zeros((0, 4), np.int64), "f32[0,4]"),
    ],
)
def scatter_elements(
    data: np.ndarray, indices: np.ndarray, updates: np.ndarray, *, axis: int = 0, reduction: str = "none"
) -> np.ndarray:
    """`data` with one update for each index: its position is the index's own, but for `axis`, where it is the index."""
    if indices.shape != updates.shape:
        why = "indices and updates differ in shape"
        raise input_error("ScatterElements", why, expected=list(indices.shape), found=list(updates.shape))
    return written("ScatterElements", data, positions("ScatterElements", data.shape, indices, axis), updates, reduction)


@op(
    "Scatter",
    since=11,
    types="T=integer+ieee+complex+bool+string index T",
    infer=as_the_data,
    examples=[case("f32[3,4]", UPDATES, "f32[2,3]"), case("f32[3,4]", np.array([[1], [3]]), "f32[2,1]", axis=1)],
)
def scatter(data: np.ndarray, indices: np.ndarray, updates: np.ndarray, *, axis: int = 0) -> np.ndarray:
    """ScatterElements by its name before opset 11, without reduction."""
    return written("Scatter", data, positions("Scatter", data.shape, indices, axis), updates, "none")


@upgrade(scatter, below=11)
def renamed(node: Node, build: Builder) -> None:
    """Opset 11 renamed it."""
    node.op = scatter_elements


def infer_scatter_nd(node: Inference) -> None:
    """The data's dtype and shape; indices and updates have to fit."""
    shape, indices = node.shape(0), node.shape(1)
    if shape is not None and indices is not None:
        if not indices:
            node.fail("the indices are a scalar")
        if isinstance(indices[-1], int) and indices[-1] > len(shape):
            node.fail(f"tuples of {indices[-1]} indices into {counted(len(shape), 'dim')}")
    node.set(0, node.dtype(0), shape)


@op(
    "ScatterND",
    since=18,
    types="T=tensor i64 T",
    traits=(Trait.MOVES,),
    infer=infer_scatter_nd,
    examples=[
        case("f32[4,3]", np.array([[1], [-1]]), "f32[2,3]"),
        case("f32[4,3]", np.array([[1, 2], [0, 0]]), "f32[2]"),
        case("f32[4,3]", np.array([[1], [1]]), "f32[2,3]", reduction="add"),
        case("i32[4]", np.array([[1], [1]]), "i32[2]", reduction="mul"),
        case("f32[4]", np.array([[1], [1]]), "f32[2]", reduction="max"),
        case("f32[4]", np.array([[1], [1]]), "f32[2]", reduction="min"),
        case("string[4]", np.array([[2]]), "string[1]"),
        case("f32[4,3]", np.zeros((0, 1), np.int64), "f32[0,3]"),
    ],
)
def scatter_nd(data: np.ndarray, indices: np.ndarray, updates: np.ndarray, *, reduction: str = "none") -> np.ndarray:
    """`data` with updates at tuples of indices, which are the last axis of `indices`."""
    index = tuple_positions("ScatterND", data.shape, indices)
    expected = (*indices.shape[:-1], *data.shape[indices.shape[-1] :])
    if updates.shape != expected:
        raise input_error("ScatterND", "the updates do not fit", expected=list(expected), found=list(updates.shape))
    return written("ScatterND", data, index, updates, reduction)


@op(
    "TensorScatter",
    since=24,
    types="T=tensor+f8+nibble+f4+f8_e8m0 T i64",
    infer=as_the_data,
    examples=[
        case("f32[2,3,5,4]", "f32[2,3,2,4]", np.array([1, 3])),
        case("f32[2,3,5,4]", "f32[2,3,2,4]"),
        case("f32[2,5,4]", "f32[2,3,4]", np.array([3, 4]), axis=1, mode="circular"),
        case("f32[0,5,4]", "f32[0,3,4]", axis=-2),
    ],
)
def tensor_scatter(
    past_cache: np.ndarray,
    update: np.ndarray,
    write_indices: np.ndarray | None = None,
    *,
    axis: int = -2,
    mode: str = "linear",
) -> np.ndarray:
    """A cache of shape (batch, ..., longest, ...) with `update` written from `write_indices` on along `axis`, around
    its end where circular."""
    along = axis_in("TensorScatter", axis, past_cache.ndim)
    batch, longest, length = (
        past_cache.shape[0],
        past_cache.shape[along],
        update.shape[along] if update.ndim == past_cache.ndim else 0,
    )
    if along == 0 or update.shape != (*past_cache.shape[:along], length, *past_cache.shape[along + 1 :]):
        why = "the update does not fit the cache"
        raise input_error("TensorScatter", why, expected=list(past_cache.shape), found=list(update.shape))
    first = np.zeros(batch, np.int64) if write_indices is None else write_indices
    places = first.reshape(batch, 1) + np.arange(length)
    if mode == "circular" and longest:
        places = places % longest
    if places.size and not (places.min() >= 0 and places.max() < longest):
        why = "the update ends outside of the cache"
        raise input_error("TensorScatter", why, "E-OP-INDEX", expected=f"below {longest}", found=places.max())
    result = past_cache.copy()
    np.moveaxis(result, along, 1)[np.arange(batch)[:, None], places] = np.moveaxis(update, along, 1)
    return result

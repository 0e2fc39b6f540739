"""Layer normalization (Ba et al. 2016, arXiv:1607.06450) and RMS normalization (Zhang and Sennrich 2019,
arXiv:1910.07467)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...runtime.ir.op import Trait, case, op
from ...runtime.ir.shape_inference import Inference, Shape
from ...runtime.plan.kernel_api import BaseStep
from ...runtime.plan.rows import Described, Fold, Output, Rows
from ...runtime.tensor.dtype import BY_ONNX, F32
from ..elementwise.declare import quiet
from ..reduce.reduction_axes import mean_over
from ..rules.expression import Term, lowered
from ..rules.shape_rules import shape_error
from .moments import MOMENTS, ROOT, rooted, scaled, shifted, the_inverse, the_mean


def first_axis(axis: int, rank: int, what: str) -> int:
    """An axis counted from the front; FormatError if it is out of range."""
    if not -rank <= axis < rank:
        raise shape_error(what, f"axis {axis} of an input of rank {rank}")
    return axis % rank


def wide(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype that statistics are computed in."""
    return np.dtype(np.float64 if dtype == np.float64 else np.float32)


def _statistics(node: Inference) -> Shape | None:
    x = node.shape(0)
    if x is None:
        return None
    first = first_axis(node.attributes["axis"], len(x), node.node.op.name)
    return (*x[:first], *(1,) * (len(x) - first))


def _infer(node: Inference) -> None:
    node.set(0, node.dtype(0), node.shape(0))
    reduced = _statistics(node)
    for index in (1, 2):
        node.set(index, BY_ONNX.get(node.attributes["stash_type"], F32), reduced)


def _infer_rms(node: Inference) -> None:
    _statistics(node)
    node.set(0, node.dtype(1), node.shape(0))


def _scaled(y: np.ndarray, scale: np.ndarray, bias: np.ndarray | None, what: str) -> np.ndarray:
    """`y` times `scale` plus `bias`, which broadcast to it."""
    try:
        np.multiply(y, scale.astype(y.dtype, copy=False), out=y)
        if bias is not None:
            np.add(y, bias.astype(y.dtype, copy=False), out=y)
    except ValueError as cause:
        shapes = " and ".join(str(item.shape) for item in (scale, bias) if item is not None)
        raise shape_error(what, f"scale and bias of shapes {shapes} do not broadcast to {y.shape}") from cause
    return y


def _wide(x: Term, axis: int) -> tuple[Term, Term] | None:
    """The input in the dtype of the statistics, and the axes that they are taken over."""
    if x.rank is None or x.value.dtype is None:
        return None
    narrow = x.value.dtype.name in ("f16", "bf16")
    return x.call("Cast", to=F32.onnx) if narrow else x, x.integers(list(range(axis % x.rank, x.rank)))


def _over_root(x: Term, squared: Term, axes: Term, epsilon: float, like: Term) -> Term:
    found = x / (squared.call("ReduceMean", axes, keepdims=1) + epsilon).call("Sqrt")
    return (
        found
        if like.value.dtype is x.value.dtype or like.value.dtype is None
        else found.call("Cast", to=like.value.dtype.onnx)
    )


def _layer_norm_of_terms(
    x: Term, scale: Term, b: Term | None = None, *, axis: int, epsilon: float, stash_type: int
) -> Term | None:
    found = _wide(x, axis)
    if found is None:
        return None
    wide, axes = found
    centred = wide - wide.call("ReduceMean", axes, keepdims=1)
    y = _over_root(centred, centred * centred, axes, epsilon, x) * scale
    return y if b is None else y + b


def _rms_norm_of_terms(x: Term, scale: Term, *, axis: int, epsilon: float, stash_type: int) -> Term | None:
    found = _wide(x, axis)
    return None if found is None else _over_root(found[0], found[0] * found[0], found[1], epsilon, scale) * scale


def over_last_axes(
    step: BaseStep, folds: Sequence[Fold], form: Callable[..., Any], *statistics: tuple[int, Callable[..., Any]]
) -> Described:
    """Rows of the axes from the attribute `axis` on: the form of elements, scale and bias, and outputs per row."""
    x, scale = step.inputs[:2]
    bias = step.inputs[2] if len(step.inputs) > 2 else None
    assert x is not None
    assert scale is not None
    operands = {"x": x, "scale": scale} | ({} if bias is None else {"bias": bias})
    outputs = [Output(form, step.output())] if step.is_used(0) else []
    outputs += [Output(function, step.output(index), True) for index, function in statistics if step.is_used(index)]
    axes = range(step.attributes["axis"] % len(x.shape), len(x.shape))
    return Rows(x.shape, axes, operands, folds, outputs, {"epsilon": step.attributes["epsilon"]})


def _layer_rows(step: BaseStep) -> Described:
    form = scaled if len(step.inputs) < 3 or step.inputs[2] is None else shifted
    return over_last_axes(step, MOMENTS, form, (1, the_mean), (2, the_inverse))


def _rms_rows(step: BaseStep) -> Described:
    return over_last_axes(step, ROOT, rooted)


@op(
    "LayerNormalization",
    since=17,
    types="T=float T T -> 3",
    traits=(Trait.SUMS,),
    infer=_infer,
    rows=_layer_rows,
    lower=lowered(_layer_norm_of_terms),
    examples=[
        case("f32[2,3,4]", "f32[4]", "f32[4]", outputs=3),
        case("f32[2,3,4]", "f32[3,4]", axis=1, epsilon=0.1),
        case("f32[2,3,4,5]", "f32[3,4,5]", "f32[3,4,5]", axis=-3, stash_type=1, outputs=3),
        case("f32[0,3]", "f32[3]", "f32[3]"),
    ],
)
@quiet
def layer_normalization(
    x: np.ndarray,
    scale: np.ndarray,
    b: np.ndarray | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Shape of `x`, normalized over `axis` and all after it; then the mean and the reciprocal of the standard deviation
    there."""
    axes = tuple(range(first_axis(axis, x.ndim, "LayerNormalization"), x.ndim))
    data: np.ndarray = x.astype(wide(x.dtype), copy=False)
    mean = mean_over(data, axes)
    y = data - mean
    inverse = 1 / np.sqrt(mean_over(np.square(y), axes) + data.dtype.type(epsilon))
    y *= inverse
    stash = BY_ONNX.get(stash_type, F32).as_numpy()
    return (
        _scaled(y, scale, b, "LayerNormalization").astype(x.dtype, copy=False),
        mean.astype(stash),
        inverse.astype(stash),
    )


@op(
    "RMSNormalization",
    since=23,
    types="float float",
    traits=(Trait.SUMS,),
    infer=_infer_rms,
    rows=_rms_rows,
    lower=lowered(_rms_norm_of_terms),
    examples=[
        case("f32[2,3,4]", "f32[4]"),
        case("f32[2,3,4]", "f32[3,4]", axis=1, epsilon=0.1),
        case("f32[2,3,4]", "f32[1]", axis=0, stash_type=1),
        case("f32[0,3]", "f32[3]"),
    ],
)
@quiet
def rms_normalization(
    x: np.ndarray, scale: np.ndarray, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> np.ndarray:
    """Shape of `x` and dtype of `scale`: over the root of the mean square over `axis` and all after it."""
    axes = tuple(range(first_axis(axis, x.ndim, "RMSNormalization"), x.ndim))
    data: np.ndarray = x.astype(wide(x.dtype), copy=False)
    y = data / np.sqrt(mean_over(np.square(data), axes) + data.dtype.type(epsilon))
    return _scaled(y, scale, None, "RMSNormalization").astype(scale.dtype, copy=False)


def rms_normalized(
    x: np.ndarray, scale: np.ndarray, epsilon: float, axes: tuple[int, ...] = (-1,)
) -> tuple[np.ndarray, np.ndarray]:
    """`x` over the root of its mean square, times `scale`; and the reciprocal of the root."""
    data = x if x.dtype == np.float64 else x.astype(np.float32, copy=False)
    inverse = 1 / np.sqrt(mean_over(np.square(data), axes) + data.dtype.type(epsilon))
    return data * inverse * scale.astype(data.dtype), inverse

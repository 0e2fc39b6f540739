"""MaxPoolGrad: the gradient of MaxPool by its input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...runtime.ir.domain import CANDLE
from ...runtime.ir.op import case
from ...runtime.ir.shape_inference import Inference
from ..rules.decomposition import composed
from ..rules.expression import Term


def side_by_side(attributes: Mapping[str, Any], lengths: Sequence[int], out: Sequence[int]) -> bool:
    """Whether windows with these attributes, `out` along axes of `lengths`, lie inside and do not overlap."""
    kernel = list(attributes["kernel_shape"])
    return (
        attributes["auto_pad"] in ("NOTSET", "VALID")
        and kernel == list(attributes["strides"] or [1] * len(kernel))
        and set(attributes["dilations"] or [1]) == {1}
        and not any(attributes["pads"] or ())
        and all(taps * count <= length for taps, count, length in zip(kernel, out, lengths, strict=True))
    )


def _infer(node: Inference) -> None:
    node.set(0, node.dtype(0), node.shape(0))


@composed(
    "MaxPoolGrad",
    CANDLE,
    types="T=float T -> 1",
    infer=_infer,
    examples=[
        case("f32[2,3,6,8]", "f32[2,3,3,4]", kernel_shape=[2, 2], strides=[2, 2]),
        case("f32[2,3,7,9]", "f32[2,3,3,4]", kernel_shape=[2, 2], strides=[2, 2]),
        case("f32[1,2,7,6]", "f32[1,2,4,3]", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        case("f32[2,3,9]", "f32[2,3,3]", kernel_shape=[3], strides=[3]),
    ],
)
def max_pool_grad(
    x: Term,
    grad: Term,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: list[int] | None = None,
    kernel_shape: list[int],
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Term:
    """The gradient of each window goes to the first of its largest elements; attributes are those of MaxPool."""
    window: dict[str, Any] = {
        "auto_pad": auto_pad, "ceil_mode": ceil_mode, "dilations": dilations, "kernel_shape": kernel_shape,
        "pads": pads, "strides": strides,
    }  # fmt: skip
    places = x.calls("MaxPool", outputs=2, **window)[1]
    flat = x.integers([-1])
    none = x.filled(0).call("Reshape", flat)
    found = none.call(
        "ScatterElements", places.call("Reshape", flat), grad.call("Reshape", flat), axis=0, reduction="add"
    )
    return found.like(x)

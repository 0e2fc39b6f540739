"""Conv and pool fusion: per-channel constants after a convolution and padding before a convolution or pool are folded
in."""

from __future__ import annotations

import numpy as np

from ...ir.builder import Builder
from ...ir.graph import Node, Value
from ...ir.op import Trait
from ...ir.registry import onnx
from ...tensor.scaled import scaled_rows
from ...tensor.stored_tensor import StoredTensor
from ..pattern.pattern import call, var
from ..pattern.replace_nodes import constant
from ..pattern.rewrite_rules import Build, Match, Rule

X, OTHER = var("x"), var("other")
EXACT = ("f32", "f64")
_conv = call("Conv|ConvTranspose", X, var("weight"), ..., name="conv")
_padded = call("Pad", X, ..., name="pad")


def _parameters(match: Match) -> tuple[StoredTensor, np.ndarray | None, int] | None:
    """Weight, bias and number of channels of a convolution with constant weights; None if their shapes do not fit."""
    node = match.node("conv")
    held = constant(match.graph, node.inputs[1])
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    shift = match.array(bias)
    if held is None or held.dtype.name not in EXACT or len(held.shape) < 3 or (bias is not None and shift is None):
        return None
    channels = held.shape[0] if node.op is onnx.Conv else held.shape[1] * node.attributes.get("group", 1)
    return (held, shift, channels) if shift is None or shift.shape == (channels,) else None


def _by_channel(match: Match, channels: int, rank: int) -> np.ndarray | None:
    """The other operand as one f64 element per channel, or one for all channels."""
    array = match.array(match["other"])
    if array is None or array.dtype.kind != "f" or array.ndim > rank:
        return None
    full = array.reshape((1,) * (rank - array.ndim) + array.shape)
    if full.shape != (1, full.shape[1], *(1,) * (rank - 2)) or full.shape[1] not in (1, channels):
        return None
    return np.broadcast_to(full.reshape(-1).astype(np.float64), channels)


def _shifted(sign: int) -> Build:
    def build(match: Match, build: Builder) -> Value | None:
        found = _parameters(match)
        by = None if found is None else _by_channel(match, found[2], len(found[0].shape))
        if found is None or by is None:
            return None
        weight, bias, _ = found
        node = match.node("conv")
        total = sign * by if bias is None else bias.astype(np.float64) + sign * by
        return build.add(
            node.op,
            [node.inputs[0], node.inputs[1], build.constant(total.astype(weight.dtype.as_numpy()))],
            node.attributes,
        )

    return build


def _scaled(power: int) -> Build:
    def build(match: Match, build: Builder) -> Value | None:
        found = _parameters(match)
        by = None if found is None else _by_channel(match, found[2], len(found[0].shape))
        if found is None or by is None or (power < 0 and not by.all()):
            return None
        weight, bias, _ = found
        node = match.node("conv")
        grouped = node.op is onnx.ConvTranspose and node.attributes.get("group", 1) != 1
        factor = by**power
        if grouped and (factor != factor[0]).any():
            return None
        numbers = weight.dtype.as_numpy()
        if node.op is onnx.Conv:
            scaled = scaled_rows(weight, factor.astype(numbers))
        else:
            columns = factor[: weight.shape[1]].reshape(-1, *(1,) * (len(weight.shape) - 2))
            scaled = StoredTensor.of((weight.numpy() * columns).astype(numbers))
        if not np.isfinite(scaled.numpy()).all():
            return None
        inputs: list[Value | None] = [node.inputs[0], build.weight(scaled)]
        if bias is not None:
            inputs.append(build.constant((bias * factor).astype(numbers)))
        return build.add(node.op, inputs, node.attributes)

    return build


def _pads(match: Match) -> tuple[list[int], float] | None:
    """Spatial padding of a constant Pad, all starts and then all ends, and the pad value; None for any other Pad."""
    node = match.node("pad")
    pads, rank = match.integers(node, 1), len(node.outputs[0].shape or ())
    axes = match.integers(node, 3) if len(node.inputs) > 3 and node.inputs[3] is not None else list(range(rank))
    given = node.inputs[2] if len(node.inputs) > 2 else None
    value = 0.0 if given is None else match.view.number(given)
    if pads is None or axes is None or value is None or rank < 3:
        return None
    if node.attributes.get("mode", "constant") != "constant" or min(pads, default=0) < 0:
        return None
    whole = [0] * (2 * rank)
    for index, axis in enumerate(axes):
        whole[axis % rank], whole[axis % rank + rank] = pads[index], pads[index + len(axes)]
    return None if any(whole[:2] + whole[rank : rank + 2]) else (whole[2:rank] + whole[rank + 2 :], value)


def _own_pads(node: Node, count: int) -> list[int] | None:
    """The explicit padding of a convolution or pool; None if it depends on the input."""
    if node.attributes.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID", ""):
        return None
    return (
        list(node.attributes.get("pads") or [0] * count) if node.attributes.get("auto_pad") != "VALID" else [0] * count
    )


def _into_conv(match: Match, build: Builder) -> Value | None:
    node, found = match.root, _pads(match)
    own = None if found is None else _own_pads(node, len(found[0]))
    if found is None or own is None or found[1] != 0:
        return None
    attributes = {name: value for name, value in node.attributes.items() if name != "auto_pad"}
    total = [one + other for one, other in zip(own, found[0], strict=True)]
    return build.add(node.op, [match["x"], *node.inputs[1:]], {**attributes, "pads": total})


def _into_pool(match: Match, build: Builder) -> Value | None:
    node, found = match.root, _pads(match)
    own = None if found is None else _own_pads(node, len(found[0]))
    kernel = node.attributes.get("kernel_shape")
    odd = node.attributes.get("ceil_mode", 0) or any(step != 1 for step in node.attributes.get("dilations") or [])
    if found is None or own is None or kernel is None or odd:
        return None
    total = [one + other for one, other in zip(own, found[0], strict=True)]
    attributes = {**{name: value for name, value in node.attributes.items() if name != "auto_pad"}, "pads": total}
    if any(pad >= kernel[index % len(kernel)] for index, pad in enumerate(total)):
        return None
    if node.op is onnx.AveragePool:
        counted = node.attributes.get("count_include_pad", 0) or not any(own)
        return (
            build.add(node.op, [match["x"]], {**attributes, "count_include_pad": 1})
            if counted and found[1] == 0
            else None
        )
    low = found[1] == -np.inf or (found[1] == 0 and not any(own) and _never_negative(match, match["x"]))
    return build.add(node.op, [match["x"]], attributes) if low else None


def _never_negative(match: Match, value: Value) -> bool:
    maker = value.producer
    if maker is None or maker.op.domain:
        return False
    low = match.view.number(maker.inputs[1]) if maker.op is onnx.Clip and len(maker.inputs) > 1 else None
    return Trait.NON_NEGATIVE in maker.op.traits or (low is not None and low >= 0)


RULES = (
    Rule("bias of a convolution", _conv + OTHER, _shifted(1)),
    Rule("difference from a convolution", _conv - OTHER, _shifted(-1)),
    Rule("scaled convolution", _conv * OTHER, _scaled(1)),
    Rule("divided convolution", _conv / OTHER, _scaled(-1)),
    Rule("padded convolution", call("Conv", _padded, ...), _into_conv),
    Rule("padded pool", call("MaxPool|AveragePool", _padded), _into_pool),
)

"""SEANet (Tagliasacchi et al. 2020, arXiv:2009.02095), the convolutional encoder and decoder of EnCodec and Mimi.

Layers are numbered as in torch's sequence, activations included. Hyper-parameters: `ratios` of the decoder,
`residual_layers` and their `growth` of dilation, `causal`, `pad_mode`, `trim`, and `lstm_layers`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ....runtime.contract.architecture import wrong_shape
from ....runtime.ir.graph import Value
from ..net import Net
from ..recurrent.lstm import lstm, lstm_cell
from .conv1d import conv1d, kernel, transposed_conv1d

MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge"}
"""Padding mode -> its name in ONNX."""
NORM_EPS = 1e-5
Recurred = tuple[Value, list[Value]]
"""A result, and the states after it."""


def seanet_down(net: Net, x: Value, name: str = "encoder") -> Value:
    """The convolutions of the encoder before the LSTM, [batch, channels, frames] of samples [batch, channels,
    samples]."""
    config = net.config
    x, place = padded_conv(net, x, f"{name}.layers.0"), 1
    for ratio in reversed(config.ratios):
        for j in range(config.residual_layers):
            x = _residual_block(net, x, f"{name}.layers.{place}", config.growth**j)
            place += 1
        x, place = padded_conv(net, net.Elu(x), f"{name}.layers.{place + 1}", stride=ratio), place + 2
    return x


def seanet_encoder_lstm(net: Net, x: Value, states: Sequence[Value], name: str = "encoder") -> Recurred:
    """The encoder's LSTM, if it has one; see `_with_lstm`."""
    return _with_lstm(net, x, f"{name}.layers.{_down(net)}.lstm", states)


def seanet_latents(net: Net, x: Value, name: str = "encoder") -> Value:
    """The encoder's last convolution, [batch, hidden, frames]."""
    return padded_conv(net, net.Elu(x), f"{name}.layers.{_down(net) + bool(net.config.lstm_layers) + 1}")


def _down(net: Net) -> int:
    """Layers of `seanet_down`."""
    return 1 + len(net.config.ratios) * (int(net.config.residual_layers) + 2)


def seanet_first(net: Net, x: Value, name: str = "decoder") -> Value:
    """The decoder's first convolution, [batch, channels, frames] of [batch, hidden, frames]."""
    return padded_conv(net, x, f"{name}.layers.0")


def seanet_decoder_lstm(net: Net, x: Value, states: Sequence[Value], name: str = "decoder") -> Recurred:
    """The decoder's LSTM, if it has one; see `_with_lstm`."""
    return _with_lstm(net, x, f"{name}.layers.1.lstm", states)


def seanet_up(net: Net, x: Value, name: str = "decoder") -> Value:
    """The convolutions of the decoder after the LSTM, samples [batch, channels, samples] of [batch, channels,
    frames]."""
    config, shortest, place = net.config, 1, 1 + bool(net.config.lstm_layers)
    for ratio in config.ratios:
        x = trimmed_conv(net, net.Elu(x), f"{name}.layers.{place + 1}", ratio)
        shortest, place = shortest * ratio, place + 2
        for j in range(config.residual_layers):
            x = _residual_block(net, x, f"{name}.layers.{place}", config.growth**j, shortest)
            place += 1
    return padded_conv(net, net.Elu(x), f"{name}.layers.{place + 1}", shortest=shortest)


def _with_lstm(net: Net, x: Value, name: str, states: Sequence[Value]) -> Recurred:
    """Layers of an LSTM, whose result is added to their input, and the states after it: hidden and cell state of each
    layer, [1, batch, channels]. Without `states` it begins with zeros."""
    if not net.config.lstm_layers:
        return x, []
    x = net.Transpose(x, perm=[2, 0, 1])
    y, last = x, []
    for layer in range(net.config.lstm_layers):
        if states:
            y, *state = lstm_cell(net, y, name, *states[2 * layer : 2 * layer + 2], layer=layer)
            last += state
        else:
            y = lstm(net, y, name, layer=layer)
    return net.Transpose(net.Add(y, x), perm=[1, 2, 0]), last


def _residual_block(net: Net, x: Value, name: str, dilation: int, shortest: int = 1) -> Value:
    y = padded_conv(net, net.Elu(x), f"{name}.block.1", dilation=dilation, shortest=shortest)
    y = padded_conv(net, net.Elu(y), f"{name}.block.3", shortest=shortest)
    if net.has(f"{name}.shortcut.conv.weight"):
        x = padded_conv(net, x, f"{name}.shortcut", shortest=shortest)
    value: Value = net.Add(x, y)
    return value


def padded_conv(
    net: Net, x: Value, name: str, *, stride: int = 1, dilation: int = 1, mode: str | None = None, shortest: int = 1
) -> Value:
    """A convolution with ``NAME.conv`` whose result has length / stride samples, rounded up, and its norm, if any.

    Args:
        mode: of padding, None for the model's.
        shortest: the least number of samples that `x` may have.
    """
    config = net.config
    total = (kernel(net, f"{name}.conv").shape[2] - 1) * dilation + 1 - stride
    if total < 0:
        raise wrong_shape(None, f"{name}.conv.weight is narrower than the stride {stride}")
    right = 0 if config.causal else total // 2
    pads = (total - right, right)
    mode = MODES[mode or config.pad_mode]
    if mode == "constant":
        pads = (total - right, right + stride - 1)
    elif total or stride > 1:
        x, pads = _mirrored(net, x, pads, stride, mode, shortest), (0, 0)
    return _normed(net, conv1d(net, x, f"{name}.conv", stride=stride, dilation=dilation, pads=pads), f"{name}.norm")


def _mirrored(net: Net, x: Value, pads: tuple[int, int], stride: int, mode: str, shortest: int) -> Value:
    """`x` padded by its own samples, so that the strides end with its last sample. Mirrored samples that it does not
    have are zeros."""
    left, right = pads
    length = net.Shape(x, start=2, end=3)
    behind = net.Add(net.Mod(net.Neg(length), [stride]), [right]) if stride > 1 else net.constant([right])
    around = net.Concat([left], behind, axis=0) if stride > 1 else net.constant([left, right])
    if mode != "reflect" or shortest > max(left, right + stride - 1):
        padded: Value = net.Pad(x, around, None, [2], mode=mode)
        return padded
    missing = net.Max(net.Sub(net.Add(net.Max(behind, [left]), [1]), length), [0])
    x = net.Pad(net.Pad(x, net.Concat([0], missing, axis=0), None, [2]), around, None, [2], mode=mode)
    value: Value = net.Slice(x, [0], net.Sub(net.Shape(x, start=2, end=3), missing), [2])
    return value


def trimmed_conv(net: Net, x: Value, name: str, stride: int, groups: int = 1) -> Value:
    """A transposed convolution with ``NAME.conv`` whose result has length x stride samples, and its norm, if any."""
    config = net.config
    total = kernel(net, f"{name}.conv").shape[2] - stride
    if total < 0:
        raise wrong_shape(None, f"{name}.conv.weight is narrower than the stride {stride}")
    right = math.ceil(total * config.trim) if config.causal else total // 2
    pads = (total - right, right)
    if not net.has(f"{name}.norm.weight"):
        return transposed_conv1d(net, x, f"{name}.conv", stride=stride, groups=groups, pads=pads)
    y = _normed(net, transposed_conv1d(net, x, f"{name}.conv", stride=stride, groups=groups), f"{name}.norm")
    end = net.Sub(net.Shape(y, start=2, end=3), [right])
    value: Value = net.Slice(y, [pads[0]], end, [2])
    return value


def _normed(net: Net, x: Value, name: str) -> Value:
    """Group norm over all channels and samples, if the model has it."""
    if not net.has(f"{name}.weight"):
        return x
    scale, shift = (net.vector(f"{name}.{part}") for part in ("weight", "bias"))
    value: Value = net.GroupNormalization(x, scale, shift, num_groups=1, epsilon=NORM_EPS)
    return value

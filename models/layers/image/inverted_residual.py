"""Blocks of mobile networks under timm's names of weights: depthwise separable, inverted residual (Sandler et al. 2018,
arXiv:1801.04381), fused, and universal inverted bottleneck (Qin et al. 2024, arXiv:2404.10518).

Which block it is, and its kernels, follow from its weights.
"""

from __future__ import annotations

from ....runtime.base.dataclass import dataclass
from ....runtime.ir.graph import Value
from .conv import SAME, Padding, batch_norm, conv, conv_norm
from .image_net import ImageNet
from .kernels import NORM_EPS
from .pooling import squeeze_excite
from .transformer import attend


@dataclass(frozen=True)
class Style:
    """Settings of a network's blocks that no weight shows.

    Attributes:
        act: activation.
        gate, gate_act: activations of squeeze and excitation, None for `act`.
        same: whether convolutions are padded as TensorFlow pads them.
        epsilon: of batch norms.
        conv_skip: whether plain convolutions are added to their input.
    """

    act: str
    gate: str = "sigmoid"
    gate_act: str | None = None
    same: bool = False
    epsilon: float = NORM_EPS
    conv_skip: bool = False

    @property
    def padding(self) -> Padding:
        """Padding of a convolution."""
        return SAME if self.same else None


def mobile_block(net: ImageNet, x: Value, channels: int, name: str, stride: int, style: Style) -> tuple[Value, int]:
    """The result of a block, and its channels; the input is added if the block changes neither size nor channels."""
    for end, last, build in BLOCKS:
        if net.has(f"{name}.{end}.weight"):
            y, out = build(net, x, name, stride, style), net.channels(f"{name}.{last}")
            skips = stride == 1 and out == channels and (build is not _plain or style.conv_skip)
            return (net.Add(y, x) if skips else y), out
    net.tensor(f"{name}.conv_pw.weight")
    raise AssertionError("a block without weights was found")


def _normed(
    net: ImageNet, x: Value, conv: str, norm: str, style: Style, stride: int = 1, groups: int = 1, act: bool = True
) -> Value:
    y = conv_norm(net, x, conv, norm, stride=stride, padding=style.padding, groups=groups, epsilon=style.epsilon)
    return net.activate(y, style.act) if act else y


def _excited(net: ImageNet, x: Value, name: str, style: Style) -> Value:
    if not net.has(f"{name}.se.conv_reduce.weight"):
        return x
    names = f"{name}.se.conv_reduce", f"{name}.se.conv_expand"
    return squeeze_excite(net, x, *names, act=style.gate_act or style.act, gate=style.gate)


def _plain(net: ImageNet, x: Value, name: str, stride: int, style: Style) -> Value:
    """One convolution."""
    return _normed(net, x, f"{name}.conv", f"{name}.bn1", style, stride)


def _fused(net: ImageNet, x: Value, name: str, stride: int, style: Style) -> Value:
    """A full convolution that expands the channels, and one of 1 x 1 that reduces them (EdgeTPU)."""
    x = _excited(net, _normed(net, x, f"{name}.conv_exp", f"{name}.bn1", style, stride), name, style)
    return _normed(net, x, f"{name}.conv_pwl", f"{name}.bn2", style, act=False)


def _inverted(net: ImageNet, x: Value, name: str, stride: int, style: Style) -> Value:
    """Expansion, depthwise convolution, reduction."""
    x = _normed(net, x, f"{name}.conv_pw", f"{name}.bn1", style)
    x = _excited(net, _normed(net, x, f"{name}.conv_dw", f"{name}.bn2", style, stride, 0), name, style)
    return _normed(net, x, f"{name}.conv_pwl", f"{name}.bn3", style, act=False)


def _separable(net: ImageNet, x: Value, name: str, stride: int, style: Style) -> Value:
    """Depthwise convolution, then one of 1 x 1."""
    x = _excited(net, _normed(net, x, f"{name}.conv_dw", f"{name}.bn1", style, stride, 0), name, style)
    return _normed(net, x, f"{name}.conv_pw", f"{name}.bn2", style, act=False)


def _universal(net: ImageNet, x: Value, name: str, stride: int, style: Style) -> Value:
    """Expansion and reduction with depthwise convolutions before, between or after them."""
    start, mid, end = (net.has(f"{name}.dw_{part}.conv.weight") for part in ("start", "mid", "end"))
    if start:
        own = f"{name}.dw_start"
        x = _normed(net, x, f"{own}.conv", f"{own}.bn", style, 1 if mid else stride, 0, act=False)
    x = _normed(net, x, f"{name}.pw_exp.conv", f"{name}.pw_exp.bn", style)
    if mid:
        x = _normed(net, x, f"{name}.dw_mid.conv", f"{name}.dw_mid.bn", style, stride, 0)
    x = _normed(net, _excited(net, x, name, style), f"{name}.pw_proj.conv", f"{name}.pw_proj.bn", style, act=False)
    if end:
        own = f"{name}.dw_end"
        x = _normed(net, x, f"{own}.conv", f"{own}.bn", style, 1 if start or mid else stride, 0, act=False)
    return channel_scale(net, x, f"{name}.layer_scale.gamma")


def _attention(net: ImageNet, x: Value, name: str, stride: int, style: Style) -> Value:
    """Multi-query attention, whose keys and values may be of a smaller image."""
    x = batch_norm(net, x, f"{name}.norm", style.epsilon)
    keys, values = (_projected(net, x, f"{name}.attn.{part}", style) for part in ("key", "value"))
    size = net.channels(f"{name}.attn.key.proj")
    heads = net.channels(f"{name}.attn.query.proj") // size
    queries = net.Reshape(conv(net, x, f"{name}.attn.query.proj"), [0, heads, size, -1])
    k, v = (net.Unsqueeze(net.flatten(part), [1]) for part in (keys, values))
    y = attend(net, net.Transpose(queries, perm=[0, 1, 3, 2]), k, v)
    y = conv(net, net.unflatten(y, x), f"{name}.attn.output.proj")
    return channel_scale(net, y, f"{name}.layer_scale.gamma")


def _projected(net: ImageNet, x: Value, name: str, style: Style) -> Value:
    if net.has(f"{name}.down_conv.weight"):
        x = _normed(net, x, f"{name}.down_conv", f"{name}.norm", style, 2, 0, act=False)
    return conv(net, x, f"{name}.proj")


def channel_scale(net: ImageNet, x: Value, name: str) -> Value:
    """A factor per channel of images, if the model has the weight."""
    if not net.has(name):
        return x
    y: Value = net.Mul(x, net.Reshape(net.vector(name), [1, -1, 1, 1]))
    return y


BLOCKS = (
    ("conv_exp", "conv_pwl", _fused),
    ("conv", "conv", _plain),
    ("pw_proj.conv", "pw_proj.conv", _universal),
    ("attn.query.proj", "attn.output.proj", _attention),
    ("conv_pwl", "conv_pwl", _inverted),
    ("conv_dw", "conv_pw", _separable),
)
"""Kinds of blocks: a weight that only they have, the layer that makes their channels, and the function."""

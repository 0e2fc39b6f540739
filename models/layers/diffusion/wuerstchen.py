"""Blocks of Wuerstchen (Pernias et al. 2023, arXiv:2306.00637): ConvNeXt blocks with global response norm, timestep
blocks, attention to a picture's own positions and to text; pictures are [batch, channels, height, width]."""

from __future__ import annotations

import numpy as np

from ....runtime.base.errors import FormatError
from ....runtime.base.units import counted
from ....runtime.contract.hyperparameter import Integer
from ....runtime.ir.graph import Value
from ....runtime.tensor.stored_tensor import StoredTensor
from ..image.conv import conv
from ..image.image_net import ImageNet
from ..linear import linear
from .conditioning import plain_norm

POSITIONS = 10000.0
"""Timesteps of 0 to 1 are multiplied by it; it is also the longest period over 2 pi."""
TIMESTEP_WIDTH = Integer(4, 65536)
"""Elements of a timestep embedding: half of them sines, half cosines, at two frequencies at least."""
NORM_FLOOR = 1e-6


def check_shape(net: ImageNet, name: str, *shape: int) -> None:
    """FormatError unless the weight `name` has the shape that the configuration gives it."""
    found = tuple(net.tensor(name).shape)
    if found != shape:
        why = f"the weight {net.scope}{name} has another shape than the configuration says"
        raise FormatError("E-ARCH-SHAPE", None, why, expected=list(shape), found=list(found))


def check_layer(net: ImageNet, name: str, out: int, *shape: int) -> None:
    """FormatError unless ``NAME.weight`` is [out, *shape] and ``NAME.bias`` is [out]."""
    check_shape(net, f"{name}.weight", out, *shape)
    check_shape(net, f"{name}.bias", out)


def sized_linear(net: ImageNet, x: Value, name: str, out: int, width: int) -> Value:
    """A linear layer of `out` x `width` weights with a bias."""
    check_layer(net, name, out, width)
    return linear(net, x, name)


def sized_pointwise(net: ImageNet, x: Value, name: str, out: int, width: int) -> Value:
    """A convolution of 1 x 1 from `width` to `out` channels with a bias."""
    check_layer(net, name, out, width, 1, 1)
    return conv(net, x, name)


def patch_conv(net: ImageNet, x: Value, name: str, out: int, channels: int, patch: int) -> Value:
    """PixelUnshuffle by `patch`, then the convolution of 1 x 1 ``NAME``: one convolution with steps of `patch`.

    Channels of an unshuffled pixel are ordered by channel, row and column, as a kernel's weights are.
    """
    check_layer(net, name, out, channels * patch * patch, 1, 1)
    weight = net.tensor(f"{name}.weight")
    kernel = StoredTensor(weight.dtype, (out, channels, patch, patch), weight.storage).cast("f32")
    y: Value = net.Conv(
        x, net.named(f"{name}.weight", kernel), net.vector(f"{name}.bias"), strides=[patch, patch], group=1
    )
    return y


def pixel_shuffle(net: ImageNet, x: Value, patch: int) -> Value:
    """[batch, channels x patch x patch, height, width] as [batch, channels, height x patch, width x patch]."""
    y: Value = net.DepthToSpace(x, blocksize=patch, mode="CRD") if patch > 1 else x
    return y


def channel_norm(net: ImageNet, x: Value, channels: int) -> Value:
    """Layer norm of each pixel's channels, without weights."""
    return net.channels_first(plain_norm(net, net.channels_last(x), channels))


def timestep_embedding(net: ImageNet, timestep: Value, width: int) -> Value:
    """Sines, then cosines of timesteps [batch] of 0 to 1: [batch, width], the last element 0 if `width` is odd.

    Angles reach 10,000, so that products are rounded as in the model's training: in f32, frequencies last.
    """
    half = width // 2
    frequencies = np.exp(np.arange(half, dtype=np.float32) * np.float32(-np.log(POSITIONS) / (half - 1)))
    angles = net.Mul(net.Unsqueeze(net.Mul(timestep, POSITIONS), [1]), net.constant(frequencies[None]))
    parts = [net.Sin(angles), net.Cos(angles)]
    if width % 2:
        parts.append(net.Mul(net.Unsqueeze(timestep, [1]), 0.0))
    y: Value = net.Concat(*parts, axis=1)
    return y


def timestep_block(net: ImageNet, x: Value, embedding: Value, name: str, channels: int, width: int) -> Value:
    """x (1 + a) + b, a and b of the timestep's embedding [batch, width]."""
    y = sized_linear(net, embedding, f"{name}.mapper", 2 * channels, width)
    scale, shift = net.split(net.Unsqueeze(y, [2, 3]), [channels, channels], axis=1)
    changed: Value = net.Add(net.Mul(x, net.Add(scale, 1.0)), shift)
    return changed


def response_norm(net: ImageNet, x: Value, name: str, channels: int) -> Value:
    """Global response norm (ConvNeXt V2; Woo et al. 2023, arXiv:2301.00808) of `x` [batch, height, width, channels]."""
    for part in ("gamma", "beta"):
        check_shape(net, f"{name}.{part}", 1, 1, 1, channels)
    norms = net.ReduceL2(x, [1, 2], keepdims=1)
    relative = net.Div(norms, net.Add(net.ReduceMean(norms, [3], keepdims=1), NORM_FLOOR))
    scaled = net.Mul(net.vector(f"{name}.gamma"), net.Mul(x, relative))
    y: Value = net.Add(net.Add(scaled, net.vector(f"{name}.beta")), x)
    return y


def residual_block(
    net: ImageNet, x: Value, name: str, channels: int, kernel: int, skips: tuple[tuple[Value, int], ...] = ()
) -> Value:
    """Depthwise convolution, norm and two linear layers, added to `x`; `skips` are pictures of the same size, each with
    its channels, that the linear layers take too."""
    check_layer(net, f"{name}.depthwise", channels, 1, kernel, kernel)
    y = plain_norm(net, net.channels_last(conv(net, x, f"{name}.depthwise", groups=0)), channels)
    if skips:
        y = net.Concat(y, *(net.channels_last(skip) for skip, _ in skips), axis=3)
    width = channels + sum(count for _, count in skips)
    y = net.Gelu(sized_linear(net, y, f"{name}.channelwise.0", 4 * channels, width))
    y = response_norm(net, y, f"{name}.channelwise.2", 4 * channels)
    y = sized_linear(net, y, f"{name}.channelwise.4", channels, 4 * channels)
    added: Value = net.Add(net.channels_first(y), x)
    return added


def attention_block(net: ImageNet, x: Value, text: Value, name: str, channels: int, width: int, heads: int) -> Value:
    """Attention from each pixel to all pixels and to `text` [batch, tokens, width], added to `x`."""
    size = channels // heads
    if not size:
        why = f"{counted(heads, 'head')} for {counted(channels, 'channel')}"
        raise FormatError("E-ARCH-KEY", None, why, hint="Correct nhead in config.json")
    inner = heads * size
    tokens = net.flatten(channel_norm(net, x, channels))
    silu = net.once(("silu", text.name), lambda: net.Mul(text, net.Sigmoid(text)))
    known = net.Concat(tokens, sized_linear(net, silu, f"{name}.kv_mapper.1", channels, width), axis=1)
    layer = f"{name}.attention"
    q, k, v = (
        net.Transpose(
            net.split_heads(sized_linear(net, source, f"{layer}.to_{part}", inner, channels), heads, size),
            perm=[0, 2, 1, 3],
        )
        for part, source in (("q", tokens), ("k", known), ("v", known))
    )
    y = net.merge_heads(net.Transpose(net.Attention(q, k, v), perm=[0, 2, 1, 3]))
    added: Value = net.Add(net.unflatten(sized_linear(net, y, f"{layer}.to_out.0", channels, inner), x), x)
    return added

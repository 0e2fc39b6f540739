"""EfficientViT of Microsoft Research (Liu et al. 2023, arXiv:2305.07027): heads that see the result of the one before
them."""

from __future__ import annotations

from ...runtime.contract.architecture import TIMM, Architecture
from ...runtime.contract.naming import Module
from ...runtime.ir.graph import Value
from ..layers.image.conv import conv_norm
from ..layers.image.image_net import ImageNet
from ..layers.image.kernels import affine
from ..layers.image.offset_bias import in_windows, offset_biases, window_side
from ..layers.image.pooling import global_pool, squeeze_excite
from ..layers.linear import linear
from ..pipelines.image.image_tasks import image_tasks
from ..schema.network_hyperparameters import DEPTHS, LABELS, ClassTask, Implied, image_act, settled_stages

MODULES = (Module("patch_embed"), Module("stages.{s}"), Module("head"))
KEYS = (ClassTask("EfficientViT"), *LABELS, DEPTHS, image_act("relu"))


def features(net: ImageNet) -> Value:
    """[batch, channels, height / 64, width / 64]."""
    x = net.pixels("patch_embed.conv1.conv.weight")
    for i in range(1, 5):
        x = _conv(net, x, f"patch_embed.conv{i}", 2)
        x = net.activate(x, net.config.act) if i < 4 else x
    for s, depth in enumerate(net.config.depths):
        name = f"stages.{s}.downsample"
        if net.has(f"{name}.patchmerge.conv1.conv.weight"):
            x = _mixed(net, x, f"{name}.res1.0", f"{name}.res1.1")
            x = _merged(net, x, f"{name}.patchmerge")
            x = _mixed(net, x, f"{name}.res2.0", f"{name}.res2.1")
        for b in range(depth):
            name = f"stages.{s}.blocks.{b}"
            x = _mixed(net, x, f"{name}.dw0", f"{name}.ffn0")
            x = net.Add(x, _attention(net, x, f"{name}.mixer.m.attn"))
            x = _mixed(net, x, f"{name}.dw1", f"{name}.ffn1")
    return x


def _conv(net: ImageNet, x: Value, name: str, stride: int = 1, groups: int = 1) -> Value:
    return conv_norm(net, x, f"{name}.conv", f"{name}.bn", stride=stride, groups=groups)


def _mixed(net: ImageNet, x: Value, places: str, channels: str) -> Value:
    """A depthwise convolution, then a feed-forward network, both added to their input."""
    x = net.Add(x, _conv(net, x, f"{places}.m", groups=0))
    y = net.activate(_conv(net, x, f"{channels}.m.pw1"), net.config.act)
    z: Value = net.Add(x, _conv(net, y, f"{channels}.m.pw2"))
    return z


def _merged(net: ImageNet, x: Value, name: str) -> Value:
    """An image of half the size."""
    act = net.config.act
    x = net.activate(_conv(net, x, f"{name}.conv1"), act)
    x = net.activate(_conv(net, x, f"{name}.conv2", 2, 0), act)
    return _conv(net, squeeze_excite(net, x, f"{name}.se.fc1", f"{name}.se.fc2"), f"{name}.conv3")


def _attention(net: ImageNet, x: Value, name: str) -> Value:
    """Cascaded group attention in windows."""
    biases = f"{name}.attention_biases"
    side, heads = window_side(net, biases), net.tensor(biases).shape[0]
    channels = heads * net.kernel(f"{name}.qkvs.0.conv.weight").shape[1]

    def attention(tokens: Value) -> Value:
        image = net.Reshape(net.Transpose(tokens, perm=[0, 2, 1]), [0, channels, side, side])
        return net.flatten(_cascade(net, image, name, heads, channels, side))

    return net.channels_first(in_windows(net, net.channels_last(x), side, channels, attention))


def _cascade(net: ImageNet, x: Value, name: str, heads: int, channels: int, side: int) -> Value:
    """Each head takes a share of the channels, and the result of the head before it."""
    bias = offset_biases(net, f"{name}.attention_biases")
    parts, results = net.split(x, [channels // heads] * heads, axis=1), []
    biases = net.split(bias, [1] * heads, axis=1)
    feature = parts[0]
    for i in range(heads):
        feature = net.Add(feature, parts[i]) if i else feature
        size = net.channels(f"{name}.dws.{i}.conv")
        value = net.channels(f"{name}.qkvs.{i}.conv") - 2 * size
        q, k, v = net.split(_conv(net, feature, f"{name}.qkvs.{i}"), [size, size, value], axis=1)
        q = _conv(net, q, f"{name}.dws.{i}", groups=0)
        q, k, v = (net.Unsqueeze(net.flatten(part), [1]) for part in (q, k, v))
        y = net.Squeeze(net.Attention(q, k, v, biases[i]), [1])
        feature = net.Reshape(net.Transpose(y, perm=[0, 2, 1]), [0, value, side, side])
        results.append(feature)
    return _conv(net, net.activate(net.Concat(*results, axis=1), net.config.act), f"{name}.proj.1")


def classify(net: ImageNet, x: Value) -> Value:
    """A batch norm and a linear layer."""
    channels = net.channels("head.bn")
    factor, shift = (
        net.named(f"head.bn.{part}", values.astype("float32"))
        for part, values in zip(("factor", "shift"), affine(net, "head.bn", channels), strict=True)
    )
    return linear(net, net.Add(net.Mul(x, factor), shift), "head.linear")


ARCHITECTURES = (
    Architecture(
        "efficientvit_msra",
        "EfficientViT (MSRA)",
        (),
        ("efficientvit_msra",),
        KEYS,
        (),
        image_tasks(features, global_pool, classify),
        implied=Implied(
            "efficientvit_msra",
            r"efficientvit_m\d",
            {TIMM: ("patch_embed.conv4.conv.weight", "stages.0.blocks.0.mixer.m.attn.attention_biases")},
            ("head.linear.weight",),
        ),
        settle=settled_stages("head.linear.weight", "stages.{s}.blocks.{b}.dw0.m.conv.weight"),
        prefixes=(),
        ignored=("attention_bias_idxs$",),
        modules=MODULES,
    ),
)

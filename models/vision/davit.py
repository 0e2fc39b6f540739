"""DaViT (Ding et al. 2022, arXiv:2204.03645), the image encoder of Florence-2: blocks that attend to pixels in windows,
then to channels in groups."""

from __future__ import annotations

from ...runtime.base.errors import FormatError
from ...runtime.contract.architecture import MODEL, Architecture, Config, Key, Task
from ...runtime.contract.hyperparameter import COUNT, Integer
from ...runtime.contract.naming import Module
from ...runtime.ir.graph import Value
from ...runtime.tensor.stored_tensor import StoredTensor
from ..layers.image.conv import conv
from ..layers.image.image_net import ImageNet
from ..layers.image.transformer import attend, heads_first, mlp
from ..layers.image.windows import cut, joined, padded, partitioned
from ..layers.linear import linear
from ..layers.norm import layer_norm
from ..pipelines.image.image_tasks import image_graph, run_image_model
from ..schema.network_hyperparameters import IMAGE_FEATURES, PADDINGS, STAGES, depths_of, image_act, norm_eps

BLOCK = "blocks.{s}.{b}."
KEYS = (
    Key("widths", "embed_dim", "embedding_lengths", [128, 256, 512, 1024], STAGES),
    Key("depths", "depths", "depths", [1, 1, 9, 1], STAGES),
    Key("heads", "num_heads", "attention.head_counts", [4, 8, 16, 32], STAGES),
    Key("groups", "num_groups", "attention.group_counts", [4, 8, 16, 32], STAGES),
    Key("patches", "patch_size", "patch_sizes", [7, 3, 3, 3], STAGES),
    Key("strides", "patch_stride", "patch_strides", [4, 2, 2, 2], STAGES),
    Key("paddings", "patch_padding", "patch_paddings", [3, 1, 1, 1], PADDINGS),
    Key("window", "window_size", "window_size", 12, Integer(1, 64)),
    Key("projection", "projection_dim", "projection_length", 1024, COUNT),
    Key("positions", "max_position_embeddings", "position_count", 50, COUNT),
    Key("times", "max_temporal_embeddings", "time_count", 100, COUNT),
    Key("hidden", (), (), lambda config: config.widths[-1]),
    Key("row_width", (), (), lambda config: config.hidden // 2),
    Key("column_width", (), (), lambda config: config.hidden - config.hidden // 2),
    norm_eps(1e-5),
    image_act("gelu", "activation_function"),
)


def settle(config: Config, weights: dict[str, StoredTensor]) -> None:
    """Take sizes from the weights. FormatError for lists of another length than the number of stages, and for windows
    of other heads or groups than divide the channels."""
    depths = depths_of(weights, f"{BLOCK}spatial_block.norm1.weight")
    kernels = [weights[f"convs.{s}.conv.weight"].shape for s in range(len(depths))]
    config.values |= {"depths": depths, "widths": [kernel[0] for kernel in kernels]}
    config.values["patches"] = [kernel[-1] for kernel in kernels]
    for key in ("heads", "groups", "strides", "paddings"):
        if len(config.values[key]) != len(depths):
            why = f"{len(config.values[key])} {key} for a model of {len(depths)} stages"
            raise FormatError("E-ARCH-KEY", config.path, why)
    for key in ("heads", "groups"):
        for count, width in zip(config.values[key], config.widths, strict=True):
            if width % count:
                raise FormatError("E-ARCH-KEY", config.path, f"{count} {key} do not divide a width of {width}")


def features(net: ImageNet) -> Value:
    """The result of the last stage, [batch, channels, height / 32, width / 32]."""
    config = net.config
    x = net.pixels("convs.0.conv.weight")
    for s, depth in enumerate(config.depths):
        x = _shrunk(net, x, f"convs.{s}", config.strides[s], config.paddings[s])
        for b in range(depth):
            name = f"blocks.{s}.{b}"
            x = _spatial(net, x, f"{name}.spatial_block", config.heads[s])
            x = _channels(net, x, f"{name}.channel_block", config.groups[s])
    return x


def _shrunk(net: ImageNet, x: Value, name: str, stride: int, padding: int) -> Value:
    """A convolution with a norm: before it where the norm has the width of its input, which the stages but the first
    have, else after it."""
    before = net.channels(f"{name}.norm") == net.kernel(f"{name}.conv.weight").shape[1]
    x = _normed(net, x, f"{name}.norm") if before else x
    x = conv(net, x, f"{name}.conv", stride=stride, padding=padding)
    return x if before else _normed(net, x, f"{name}.norm")


def _normed(net: ImageNet, x: Value, name: str) -> Value:
    return net.channels_first(layer_norm(net, net.channels_last(x), name, net.config.eps))


def _spatial(net: ImageNet, x: Value, name: str, heads: int) -> Value:
    """Attention of the pixels of each window, then a feed-forward network."""
    x = net.Add(conv(net, x, f"{name}.conv1", groups=0), x)
    image = net.channels_last(x)
    y = layer_norm(net, image, f"{name}.norm1", net.config.eps)
    whole, window, width = padded(net, y, net.config.window), net.config.window, net.channels(f"{name}.norm1")
    tokens = linear(net, partitioned(net, whole, window, width), f"{name}.window_attn.qkv")
    q, k, v = (heads_first(net, part, heads, width // heads) for part in net.split(tokens, [width] * 3))
    seen = linear(net, attend(net, q, k, v), f"{name}.window_attn.proj")
    image = net.Add(image, cut(net, joined(net, seen, whole, window, width), y))
    return _feed_forward(net, net.channels_first(image), name)


def _channels(net: ImageNet, x: Value, name: str, groups: int) -> Value:
    """Attention of the channels of each group to each other, over all pixels, then a feed-forward network."""
    x = net.Add(conv(net, x, f"{name}.conv1", groups=0), x)
    tokens = net.flatten(x)
    width = net.channels(f"{name}.norm1")
    y = linear(net, layer_norm(net, tokens, f"{name}.norm1", net.config.eps), f"{name}.channel_attn.qkv")
    q, k, v = (net.split_heads(part, groups, width // groups) for part in net.split(y, [width] * 3))
    scale = net.Pow(net.Cast(net.Shape(tokens, start=1, end=2), to=1), -0.5)
    scores = net.MatMul(net.Transpose(net.Mul(q, scale), perm=[0, 2, 3, 1]), net.Transpose(k, perm=[0, 2, 1, 3]))
    mixed = net.MatMul(net.Softmax(scores, axis=-1), net.Transpose(v, perm=[0, 2, 3, 1]))
    y = linear(net, net.merge_heads(net.Transpose(mixed, perm=[0, 3, 1, 2])), f"{name}.channel_attn.proj")
    return _feed_forward(net, net.unflatten(net.Add(tokens, y), x), name)


def _feed_forward(net: ImageNet, x: Value, name: str) -> Value:
    """A depthwise convolution and a feed-forward network, each added to its input."""
    x = net.Add(conv(net, x, f"{name}.conv2", groups=0), x)
    image = net.channels_last(x)
    y = mlp(net, layer_norm(net, image, f"{name}.norm2", net.config.eps), f"{name}.ffn")
    return net.channels_first(net.Add(image, y))


def vectors(net: ImageNet) -> None:
    """Output ``last_hidden_state`` [batch, channels, height / 32, width / 32]."""
    net.output("last_hidden_state", features(net))


ARCHITECTURES = (
    Architecture(
        "davit",
        "DaViT",
        ("florence_vision", "davit"),
        ("davit",),
        KEYS,
        (),
        (Task(IMAGE_FEATURES, {MODEL: image_graph(vectors)}, run_image_model, aliases=("feature-extraction",)),),
        settle=settle,
        prefixes=("vision_tower.",),
        ignored=(),
        modules=(Module("convs.{s}"), Module("blocks.{s}.{b}")),
    ),
)

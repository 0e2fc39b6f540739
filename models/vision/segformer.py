"""SegFormer (Xie et al. 2021, arXiv:2105.15203): segmentation and classification."""

from __future__ import annotations

from ...runtime.base.errors import FormatError
from ...runtime.base.units import counted
from ...runtime.contract.architecture import MODEL, Architecture, Config, Key, Task
from ...runtime.contract.hyperparameter import Integer, Listed
from ...runtime.contract.naming import Module
from ...runtime.ir.graph import Value
from ...runtime.tensor.stored_tensor import StoredTensor
from ..layers.image.conv import conv, conv_norm
from ..layers.image.image_net import ImageNet
from ..layers.image.pooling import global_pool
from ..layers.image.resize import bilinear, size_of
from ..layers.image.transformer import projected_attention
from ..layers.linear import linear
from ..layers.norm import layer_norm
from ..pipelines.image.image_tasks import image_graph, image_tasks, run_image_model
from ..schema.network_hyperparameters import (
    IMAGE_SEGMENTATION,
    LABELS,
    STAGES,
    TASKS_OF_CLASSES,
    WIDTHS,
    ClassTask,
    depths_of,
    image_act,
    settle_labels,
)

EPS = 1e-5
"""Epsilon of all layer norms; transformers does not use the one in config.json."""
BLOCK = {
    "norm1": "layer_norm_1",
    "norm2": "layer_norm_2",
    "attn.q_proj": "attention.self.query",
    "attn.k_proj": "attention.self.key",
    "attn.v_proj": "attention.self.value",
    "attn.sr": "attention.self.sr",
    "attn.norm": "attention.self.layer_norm",
    "attn.out_proj": "attention.output.dense",
    "mlp.fc1": "mlp.dense1",
    "mlp.dwconv": "mlp.dwconv.dwconv",
    "mlp.fc2": "mlp.dense2",
}
MODULES = (
    Module("stages.{s}.patch_embed.proj", hf="encoder.patch_embeddings.{s}.proj"),
    Module("stages.{s}.patch_embed.norm", hf="encoder.patch_embeddings.{s}.layer_norm"),
    *(Module(f"stages.{{s}}.blocks.{{b}}.{own}", hf=f"encoder.block.{{s}}.{{b}}.{hf}") for own, hf in BLOCK.items()),
    Module("stages.{s}.norm", hf="encoder.layer_norm.{s}"),
    Module("decode_head.linear_c.{s}", hf="decode_head.linear_c.{s}.proj"),
    Module("decode_head"),
    Module("head", hf="classifier"),
)
KEYS = (
    ClassTask("Segformer", (("ForSemanticSegmentation", IMAGE_SEGMENTATION), *TASKS_OF_CLASSES)),
    *LABELS,
    Key("depths", "depths", "depths", None, STAGES),
    Key("widths", "hidden_sizes", "widths", None, WIDTHS),
    Key("heads", "num_attention_heads", "attention.head_count", [1, 2, 5, 8], STAGES),
    Key("strides", "strides", "strides", [4, 2, 2, 2], Listed(Integer(1, 64), 1, 16)),
    Key("patches", "patch_sizes", (), None, STAGES),
    Key("reductions", "sr_ratios", (), None, STAGES),
    Key("ratios", "mlp_ratios", (), None, STAGES),
    Key("stages", "num_encoder_blocks", (), None),
    Key("decoder_width", "decoder_hidden_size", (), None),
    image_act("gelu"),
)


def settle(config: Config, weights: dict[str, StoredTensor]) -> None:
    """Take sizes from the weights. FormatError for lists that are not of one length for each stage."""
    head = "decode_head.classifier.weight"
    settle_labels(config, weights, head if head in weights else "head.weight")
    depths = depths_of(weights, "stages.{s}.blocks.{b}.norm1.weight")
    stages = range(len(depths))
    for key in ("heads", "strides"):
        if len(config.values[key]) != len(depths):
            why = f"{len(config.values[key])} {key} for a model of {counted(len(depths), 'stage')}"
            raise FormatError("E-ARCH-KEY", config.path, why)
    patches = [weights[f"stages.{s}.patch_embed.proj.weight"].shape for s in stages]
    inner = [weights[f"stages.{s}.blocks.0.mlp.fc1.weight"].shape for s in stages]
    reducing = [weights.get(f"stages.{s}.blocks.0.attn.sr.weight") for s in stages]
    fused = weights.get("decode_head.linear_fuse.weight")
    config.values |= {
        "depths": depths,
        "stages": len(depths),
        "widths": [shape[0] for shape in patches],
        "patches": [shape[-1] for shape in patches],
        "ratios": [out // width for out, width in inner],
        "reductions": [1 if kernel is None else kernel.shape[-1] for kernel in reducing],
        "decoder_width": None if fused is None else fused.shape[0],
    }


def stages_of(net: ImageNet) -> list[Value]:
    """The results of the stages, [batch, channels, height / 4, width / 4], of half that size, and so on."""
    x = net.pixels("stages.0.patch_embed.proj.weight")
    found = []
    for s, stride in enumerate(net.config.strides):
        padding = net.kernel(f"stages.{s}.patch_embed.proj.weight").shape[-1] // 2
        x = conv(net, x, f"stages.{s}.patch_embed.proj", stride=stride, padding=padding)
        tokens = layer_norm(net, net.flatten(x), f"stages.{s}.patch_embed.norm", EPS)
        for b in range(net.config.depths[s]):
            tokens = _block(net, tokens, x, f"stages.{s}.blocks.{b}", net.config.heads[s])
        x = net.unflatten(layer_norm(net, tokens, f"stages.{s}.norm", EPS), x)
        found.append(x)
    return found


def features(net: ImageNet) -> Value:
    """The result of the last stage, [batch, channels, height / 32, width / 32]."""
    return stages_of(net)[-1]


def segmented(net: ImageNet) -> None:
    """Logits of each class, [batch, classes, height / 4, width / 4]: all stages resized to the first one, and a
    convolution of them."""
    found = stages_of(net)
    size = size_of(net, found[0])
    resized = []
    for s, x in enumerate(found):
        y = net.unflatten(linear(net, net.flatten(x), f"decode_head.linear_c.{s}"), x)
        resized.append(bilinear(net, y, size) if s else y)
    x = net.Concat(*reversed(resized), axis=1)
    x = net.Relu(conv_norm(net, x, "decode_head.linear_fuse", "decode_head.batch_norm"))
    net.output("logits", conv(net, x, "decode_head.classifier"))


def _block(net: ImageNet, tokens: Value, like: Value, name: str, heads: int) -> Value:
    """Attention to fewer keys, then a feed-forward network with a depthwise convolution; `tokens` are the pixels of an
    image of the size of `like`."""
    y = layer_norm(net, tokens, f"{name}.norm1", EPS)
    keys = y
    if net.has(f"{name}.attn.sr.weight"):
        stride = net.kernel(f"{name}.attn.sr.weight").shape[-1]
        fewer = conv(net, net.unflatten(y, like), f"{name}.attn.sr", stride=stride, padding=0)
        keys = layer_norm(net, net.flatten(fewer), f"{name}.attn.norm", EPS)
    tokens = net.Add(tokens, projected_attention(net, y, keys, keys, f"{name}.attn", heads))
    y = linear(net, layer_norm(net, tokens, f"{name}.norm2", EPS), f"{name}.mlp.fc1")
    y = net.flatten(conv(net, net.unflatten(y, like), f"{name}.mlp.dwconv", groups=0))
    return net.Add(tokens, linear(net, net.activate(y, net.config.act), f"{name}.mlp.fc2"))


ARCHITECTURES = (
    Architecture(
        "segformer",
        "SegFormer",
        ("segformer",),
        ("segformer",),
        KEYS,
        (),
        (
            Task(IMAGE_SEGMENTATION, {MODEL: image_graph(segmented)}, run_image_model),
            *image_tasks(features, global_pool, lambda net, x: linear(net, x, "head")),
        ),
        settle=settle,
        prefixes=("segformer.",),
        ignored=(),
        modules=MODULES,
    ),
)

"""Layers that UNets and ControlNets of latent diffusion share: conditions, the encoder, the middle."""

from __future__ import annotations

from ....runtime.base.dataclass import dataclass
from ....runtime.ir.graph import Value
from ...schema.diffusion.unet_keys import text_width
from ...schema.diffusion.unet_stages import Stage, down_stages, middle_stage
from ..image.conv import conv
from ..image.image_net import ImageNet
from ..linear import embedding, linear
from .conditioning import sinusoidal, two_layers
from .residual_block import residual_block
from .spatial_transformer import spatial_transformer


@dataclass(frozen=True)
class Condition:
    """Inputs of a prediction besides the latents.

    Attributes:
        time: the sum of the embeddings of the timestep and of further vectors, after its activation, f32 [batch,
            width].
        text: embeddings of the text's tokens, f32 [batch, tokens, width].
    """

    time: Value
    text: Value


def latents(net: ImageNet) -> Value:
    """Declare the input ``sample`` f32 [batch, channels, height, width]."""
    return net.input("sample", "f32", ("batch", net.config.channels, "height", "width"))


def conditions(net: ImageNet, *, one_time: bool = False) -> Condition:
    """Declare the inputs ``timestep`` f32 [batch], f32 [] if `one_time`, and ``encoder_hidden_states`` f32 [batch,
    tokens, width], and where the configuration has them ``timestep_cond`` f32 [batch, width] (LCM), ``class_labels``
    i64 [batch] or f32 [batch, width], ``text_embeds`` f32 [batch, width] and ``time_ids`` f32 [batch, ids] (SDXL)."""
    config = net.config
    timestep = net.input("timestep", "f32", () if one_time else ("batch",))
    text = net.input("encoder_hidden_states", "f32", ("batch", "tokens", text_width(config)))
    y = frequencies(net, net.Reshape(timestep, [1]) if one_time else timestep, config.widths[0])
    if config.values.get("guidance_width"):
        guidance = net.input("timestep_cond", "f32", ("batch", config.guidance_width))
        y = net.Add(y, linear(net, guidance, "time_embedding.cond_proj"))
    time = two_layers(net, y, "time_embedding", config.act)
    if config.class_embedding:
        labels = net.input("class_labels", "f32", ("batch", config.addition_width))
        time = net.Add(time, two_layers(net, labels, "class_embedding"))
    elif config.classes:
        time = net.Add(time, embedding(net, net.input("class_labels", "i64", ("batch",)), "class_embedding"))
    if config.addition:
        time = net.Add(time, added_condition(net))
    return Condition(net.activate(time, config.act), text)


def frequencies(net: ImageNet, x: Value, width: int) -> Value:
    """Sines and cosines of `x` [count], [count, width], in the configuration's order."""
    config = net.config
    return sinusoidal(net, x, width, sines_first=not config.cosines_first, shift=config.frequency_shift)


def added_condition(net: ImageNet) -> Value:
    """Embedding of the pooled text and of sizes and offsets of the picture (SDXL; Podell et al. 2023,
    arXiv:2307.01952)."""
    pooled = net.input("text_embeds", "f32", ("batch", "text_width"))
    ids = net.input("time_ids", "f32", ("batch", "ids"))
    sizes = frequencies(net, net.Reshape(ids, [-1]), net.config.addition_time)
    rows = net.Concat(net.Shape(ids, start=0, end=1), [-1], axis=0)
    return two_layers(net, net.Concat(pooled, net.Reshape(sizes, rows), axis=-1), "add_embedding")


def descend(net: ImageNet, x: Value, condition: Condition) -> tuple[Value, list[Value]]:
    """The way down from the first convolution's result `x`: the result, and all skip connections, `x` included."""
    skips, padding = [x], net.config.down_padding or (0, 1)
    for stage in down_stages(net.config):
        for j in range(len(stage.channels)):
            x = block(net, x, condition, stage, j)
            skips.append(x)
        if stage.resampled:
            x = conv(net, x, f"{stage.name}.downsamplers.0.conv", stride=2, padding=padding)
            skips.append(x)
    return x, skips


def middle(net: ImageNet, x: Value, condition: Condition) -> Value:
    """The residual blocks and the transformer of the lowest resolution."""
    stage = middle_stage(net.config)
    for j in range(len(stage.channels)):
        x = block(net, x, condition, stage, j)
    return x


def block(net: ImageNet, x: Value, condition: Condition, stage: Stage, j: int) -> Value:
    """Residual block `j` of a stage, with the transformer after it if the stage has attention."""
    x = residual_block(net, x, f"{stage.name}.resnets.{j}", net.config.eps, condition.time)
    if not stage.transformers[j]:
        return x
    return spatial_transformer(
        net,
        x,
        condition.text,
        f"{stage.name}.attentions.{j}",
        layers=stage.transformers[j],
        heads=stage.heads,
        only_cross=stage.only_cross,
    )

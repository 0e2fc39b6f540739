"""BLIP's image encoder (Li et al. 2022, arXiv:2201.12086): a vision transformer with fused queries, keys and values."""

from __future__ import annotations

from ...runtime.contract.architecture import MODEL, Architecture, Task
from ...runtime.contract.naming import Module
from ..layers.image.image_net import ImageNet
from ..layers.image.vision_transformer import features, token
from ..layers.norm import layer_norm
from ..pipelines.image.image_tasks import image_graph, run_image_model
from ..schema.clip.towers import settle_vision, vision_keys
from ..schema.network_hyperparameters import IMAGE_FEATURES

HF, BLOCK = "encoder.layers.{i}.", "blocks.{i}."
MODULES = (
    Module("cls_token", hf="embeddings.class_embedding"),
    Module("pos_embed", hf="embeddings.position_embedding"),
    Module("patch_embed.proj", hf="embeddings.patch_embedding"),
    Module(f"{BLOCK}norm1", hf=f"{HF}layer_norm1"),
    Module(f"{BLOCK}norm2", hf=f"{HF}layer_norm2"),
    Module(f"{BLOCK}mlp", hf=f"{HF}mlp"),
    Module(f"{BLOCK}attn.qkv", hf=f"{HF}self_attn.qkv"),
    Module(f"{BLOCK}attn.proj", hf=f"{HF}self_attn.projection"),
    Module("norm", hf="post_layernorm"),
)


def vectors(net: ImageNet) -> None:
    """Outputs ``last_hidden_state`` [batch, 1 + patches, hidden] and ``pooler_output`` [batch, hidden]: the class
    token, normalized once more."""
    x = features(net)
    net.output("last_hidden_state", x)
    net.output("pooler_output", layer_norm(net, token(net, x), "norm", net.config.eps))


ARCHITECTURES = (
    Architecture(
        "blip_vision",
        "BLIP image encoder",
        ("blip_vision_model",),
        ("blip_vision",),
        vision_keys("BlipVisionModel", IMAGE_FEATURES, act="gelu", eps=1e-5, patch=16, pool="token"),
        (),
        (Task(IMAGE_FEATURES, {MODEL: image_graph(vectors)}, run_image_model, aliases=("feature-extraction",)),),
        settle=settle_vision,
        prefixes=("vision_model.",),
        ignored=(r"position_ids$",),
        modules=MODULES,
    ),
)

"""SigLIP's image encoder (Zhai et al. 2023, arXiv:2303.15343): a vision transformer pooled by attention of a learned
query."""

from __future__ import annotations

from ...runtime.contract.architecture import MODEL, Architecture, Config, Key, Task
from ...runtime.contract.hyperparameter import flag
from ...runtime.contract.naming import Module
from ...runtime.tensor.stored_tensor import StoredTensor
from ..layers.image.image_net import ImageNet
from ..layers.image.vision_transformer import features, pool
from ..pipelines.image.image_tasks import image_graph, run_image_model
from ..schema.clip.towers import settle_vision, vision_keys, vision_modules
from ..schema.fused_weight_layout import RowShare
from ..schema.network_hyperparameters import IMAGE_FEATURES

HEAD = "vision_model.head."
MODULES = vision_modules(
    "vision_model.",
    (
        Module("norm", hf="vision_model.post_layernorm"),
        Module("attn_pool.latent", hf=f"{HEAD}probe"),
        *(
            Module(f"attn_pool.{own}.{kind}", hf=f"{HEAD}attention.in_proj_{kind}", layout=RowShare(first, last, 3))
            for kind in ("weight", "bias")
            for own, first, last in (("q", 0, 1), ("kv", 1, 3))
        ),
        Module("attn_pool.proj", hf=f"{HEAD}attention.out_proj"),
        Module("attn_pool.norm", hf=f"{HEAD}layernorm"),
        Module("attn_pool.mlp", hf=f"{HEAD}mlp"),
    ),
)


def settle(config: Config, weights: dict[str, StoredTensor]) -> None:
    """Take sizes, and whether there is a pool, from the weights."""
    settle_vision(config, weights)
    config.values["pooled"] = "attn_pool.q.weight" in weights


def vectors(net: ImageNet) -> None:
    """Outputs ``last_hidden_state`` [batch, patches, hidden] and, of models with a pool, ``pooler_output`` [batch,
    hidden]."""
    x = features(net)
    net.output("last_hidden_state", x)
    if net.config.pooled:
        net.output("pooler_output", pool(net, x))


IDEFICS = {"hidden_size": 1152, "num_attention_heads": 16, "patch_size": 32}
ARCHITECTURES = (
    Architecture(
        "siglip_vision",
        "SigLIP image encoder",
        ("siglip_vision_model", "idefics3_vision", "smolvlm_vision"),
        ("siglip_vision",),
        (
            *vision_keys("SiglipVisionModel", IMAGE_FEATURES, act="gelu_tanh", eps=1e-6, patch=16, pool="map"),
            Key("pooled", "vision_use_head", (), True, flag),
        ),
        (),
        (Task(IMAGE_FEATURES, {MODEL: image_graph(vectors)}, run_image_model, aliases=("feature-extraction",)),),
        settle=settle,
        prefixes=("vision_model.",),
        ignored=(r"position_ids$",),
        modules=MODULES,
        defaults={"idefics3_vision": IDEFICS, "smolvlm_vision": IDEFICS},
    ),
)

"""CLIP's image encoder (Radford et al. 2021, arXiv:2103.00020): a vision transformer with a norm before its layers."""

from __future__ import annotations

from ...runtime.contract.architecture import MODEL, Architecture, Task
from ...runtime.contract.naming import Module
from ..layers.encoder import tower_outputs
from ..layers.image.image_net import ImageNet
from ..layers.image.vision_transformer import features, pool
from ..pipelines.image.image_tasks import image_graph, run_image_model
from ..schema.clip.towers import settle_vision, vision_keys, vision_modules
from ..schema.network_hyperparameters import IMAGE_FEATURES
from ..schema.weight_layout import TRANSPOSED

MODULES = vision_modules(
    "vision_model.",
    (
        Module("fc_norm", hf="vision_model.post_layernorm", original="visual.ln_post"),
        Module("visual_projection.weight", original="visual.proj", layout=TRANSPOSED),
    ),
)


def vectors(net: ImageNet) -> None:
    """Outputs ``last_hidden_state`` [batch, 1 + patches, hidden], and ``pooler_output`` [batch, hidden]: the normalized
    class token. With a projection the second one is ``image_embeds`` [batch, projection]."""
    x = features(net)
    tower_outputs(net, x, pool(net, x), "visual_projection", "image_embeds")


ARCHITECTURES = (
    Architecture(
        "clip_vision",
        "CLIP image encoder",
        ("clip_vision_model", "chinese_clip_vision_model"),
        ("clip_vision",),
        vision_keys("CLIPVisionModel", IMAGE_FEATURES, act="quick_gelu", eps=1e-5, patch=32, pool="token"),
        (),
        (Task(IMAGE_FEATURES, {MODEL: image_graph(vectors)}, run_image_model, aliases=("feature-extraction",)),),
        settle=settle_vision,
        prefixes=("vision_model.",),
        ignored=(r"position_ids$",),
        modules=MODULES,
    ),
)

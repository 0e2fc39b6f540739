"""DINOv2 (Oquab et al. 2023, arXiv:2304.07193), with register tokens too (Darcet et al. 2023, arXiv:2309.16588)."""

from __future__ import annotations

from ...runtime.contract.architecture import Architecture, Config, Key
from ...runtime.contract.hyperparameter import flag
from ...runtime.tensor.stored_tensor import StoredTensor
from ..layers.image.vision_transformer import BOTH, features, logits, pool, pooler
from ..pipelines.image.image_tasks import image_tasks
from ..schema.network_hyperparameters import ClassTask, Implied
from ..schema.vit import settle_vit, vit_keys, vit_modules, vit_settings

LAYERS = {
    "norm1": "norm1",
    "norm2": "norm2",
    "mlp.fc1": "mlp.fc1",
    "mlp.fc2": "mlp.fc2",
    "mlp.w12": "mlp.weights_in",
    "mlp.w3": "mlp.weights_out",
    "ls1.gamma": "layer_scale1.lambda1",
    "ls2.gamma": "layer_scale2.lambda1",
}
MLP_RATIO = 4
"""MLP ratio of gated networks, whose width is 2 / 3 of it, rounded."""
MODULES = vit_modules("encoder.layer.", LAYERS)
MLP_KEYS = (Key("gated", "use_swiglu_ffn", "swiglu", False, flag), Key("mlp_ratio", "mlp_ratio", (), None))


def settle(config: Config, weights: dict[str, StoredTensor]) -> None:
    """As ViT; a head that takes twice the width sees the class token next to the mean of the patches."""
    settle_vit(config, weights)
    inner = weights.get("blocks.0.mlp.w3.weight")
    config.values["gated"] = inner is not None
    config.values["mlp_ratio"] = MLP_RATIO if inner is not None else config.intermediate // config.hidden
    head = weights.get("head.weight")
    if head is not None and head.shape[-1] == 2 * config.hidden:
        config.values["pool"] = BOTH


def _architecture(name: str, title: str, stem: str, timm: str) -> Architecture:
    return Architecture(
        name,
        title,
        (name,),
        (name,),
        (*vit_keys(ClassTask(stem), 1e-6, antialias="Registers" in stem), *MLP_KEYS),
        (),
        image_tasks(features, pool, logits, pooler),
        implied=Implied(name, timm, {}, ("head.weight",), vit_settings),
        settle=settle,
        prefixes=(f"{name}.",),
        ignored=("^mask_token$", "embeddings.mask_token$"),
        modules=MODULES,
        defaults={name: {"num_attention_heads": 12}},
    )


ARCHITECTURES = (
    _architecture("dinov2", "DINOv2", "Dinov2", r"(vit_(?!\w*reg)\w+_dinov2|dinov2_vit[a-z]\d+(_lc)?)"),
    _architecture(
        "dinov2_with_registers",
        "DINOv2 with registers",
        "Dinov2WithRegisters",
        r"(vit_\w+reg4?_dinov2|dinov2_vit[a-z]\d+_reg4?(_lc)?)",
    ),
)

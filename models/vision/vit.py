"""Vision transformer (ViT; Dosovitskiy et al. 2020, arXiv:2010.11929) and DeiT (Touvron et al. 2020,
arXiv:2012.12877)."""

from __future__ import annotations

from ...runtime.contract.architecture import HF, MODEL, TIMM, Architecture, Task
from ...runtime.contract.naming import Module
from ..layers.image.image_net import ImageNet
from ..layers.image.vision_transformer import features, logits, pool, pooler, token
from ..layers.linear import linear
from ..pipelines.image.image_tasks import image_graph, image_tasks, run_image_model
from ..schema.network_hyperparameters import IMAGE_CLASSIFICATION, TASKS_OF_CLASSES, ClassTask, Implied
from ..schema.vit import HF_LAYERS, settle_vit, vit_keys, vit_modules, vit_settings

MODULES = vit_modules("encoder.layer.", HF_LAYERS)
MARKS = ("patch_embed.proj.weight", "blocks.0.attn.qkv.weight", "blocks.0.norm1.weight", "blocks.0.mlp.fc1.weight")
CLASSES = (("ForImageClassificationWithTeacher", IMAGE_CLASSIFICATION), *TASKS_OF_CLASSES)
CLASSIFY, *OTHERS = image_tasks(features, pool, logits, pooler)


def distilled(net: ImageNet) -> None:
    """Logits of the class token and of the distillation token, and their mean."""
    x = features(net)
    if not net.has("head_dist.weight"):
        net.output("logits", logits(net, token(net, x)))
        return
    both = logits(net, token(net, x)), linear(net, token(net, x, 1), "head_dist")
    net.output("logits", net.Mul(net.Add(*both), 0.5))
    for name, value in zip(("cls_logits", "distillation_logits"), both, strict=True):
        net.output(name, value)


ARCHITECTURES = (
    Architecture(
        "vit",
        "ViT",
        ("vit",),
        ("vit",),
        vit_keys(ClassTask("ViT"), 1e-12),
        (),
        (CLASSIFY, *OTHERS),
        implied=Implied(
            "vit",
            r"(vit_(?!.*(dinov2|dinov3|hybrid|resnet|relpos|srelpos|pe_|rope|rpb|rpn))\w+|deit3?_(?!.*distilled)\w+|beit3_\w+|flexivit_\w+)",
            {HF: ("cls_token", "encoder.layer.0.layernorm_before.weight"), TIMM: MARKS},
            ("head.weight", "classifier.weight"),
            vit_settings,
        ),
        settle=settle_vit,
        prefixes=("vit.",),
        ignored=("^mask_token$", "embeddings.mask_token$"),
        modules=MODULES,
        defaults={"vit": {"num_attention_heads": 12}},
    ),
    Architecture(
        "deit",
        "DeiT",
        ("deit",),
        ("deit",),
        vit_keys(ClassTask("DeiT", CLASSES), 1e-12),
        (),
        (Task(IMAGE_CLASSIFICATION, {MODEL: image_graph(distilled)}, run_image_model), *OTHERS),
        implied=Implied(
            "deit", r"deit3?_\w+_distilled_\w+", {TIMM: ("dist_token", *MARKS)}, ("head.weight",), vit_settings
        ),
        settle=settle_vit,
        prefixes=("deit.",),
        ignored=("^mask_token$", "embeddings.mask_token$"),
        modules=(Module("head", hf="cls_classifier"), Module("head_dist", hf="distillation_classifier"), *MODULES),
        defaults={"deit": {"num_attention_heads": 12}},
    ),
)

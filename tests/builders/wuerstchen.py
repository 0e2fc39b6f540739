"""Small networks of Wuerstchen with random weights, made and saved by diffusers."""

import numpy as np
import pytest

PRIOR = {"c_in": 8, "c": 64, "c_cond": 40, "c_r": 16, "depth": 2, "nhead": 4}
DECODER = {
    "c_in": 4,
    "c_out": 4,
    "c_r": 16,
    "patch_size": 2,
    "c_cond": 40,
    "c_hidden": [16, 32, 48],
    "nhead": [-1, 4, 4],
    "blocks": [1, 1, 2],
    "level_config": ["CT", "CTA", "CTA"],
    "inject_effnet": [False, True, True],
    "effnet_embd": 8,
    "clip_embd": 24,
}
VQGAN = {"bottleneck_blocks": 2, "embed_dim": 32, "num_vq_embeddings": 32}


def saved(folder, kind, seed=0, **options):
    """The prior, decoder or vqgan of a seed, saved in a folder; options are added to those above."""
    pytest.importorskip("diffusers")
    import torch
    from diffusers.pipelines.deprecated.wuerstchen.modeling_paella_vq_model import PaellaVQModel
    from diffusers.pipelines.deprecated.wuerstchen.modeling_wuerstchen_diffnext import WuerstchenDiffNeXt
    from diffusers.pipelines.deprecated.wuerstchen.modeling_wuerstchen_prior import WuerstchenPrior

    cls, sizes = {
        "prior": (WuerstchenPrior, PRIOR),
        "decoder": (WuerstchenDiffNeXt, DECODER),
        "vqgan": (PaellaVQModel, VQGAN),
    }[kind]
    torch.manual_seed(seed)
    model = cls(**(sizes | options)).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
            if name.startswith(("out.1", "clf.1")):
                parameter.mul_(0.2)  # the divisor of the prediction stays away from 0
        for name, buffer in model.named_buffers():
            if name.endswith(("running_mean", "running_var")):
                buffer.copy_(torch.rand_like(buffer) + 0.5)
    model.save_pretrained(folder)
    return model


def inputs(kind, options, batch=2, size=(6, 8), tokens=7, semantic=(3, 4), seed=0):
    """Inputs of a prior or decoder with options, by name."""
    random = np.random.default_rng(seed)

    def normal(*shape):
        return random.standard_normal(shape).astype(np.float32)

    times = random.uniform(0.05, 1, batch).astype(np.float32)
    if kind == "prior":
        sizes = PRIOR | options
        return {"x": normal(batch, sizes["c_in"], *size), "r": times, "c": normal(batch, tokens, sizes["c_cond"])}
    sizes = DECODER | options
    return {
        "x": normal(batch, sizes["c_in"], *size),
        "r": times,
        "effnet": normal(batch, sizes["effnet_embd"], *semantic),
        "clip": normal(batch, tokens, sizes["clip_embd"]),
    }

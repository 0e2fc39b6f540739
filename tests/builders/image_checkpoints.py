"""Tiny image models of transformers with random weights, as directories."""

import json

import torch
import transformers
from torch import nn


def randomized(model, seed=0):
    """The model with values that show in the results: norms about 1, statistics of batch norms, factors about 0.5."""
    random = torch.Generator().manual_seed(seed)

    def normal(tensor, scale, middle=0.0):
        tensor.copy_(middle + scale * torch.randn(tensor.shape, generator=random))

    with torch.no_grad():
        for module in model.modules():
            norm = isinstance(module, nn.LayerNorm | nn.GroupNorm | nn.modules.batchnorm._BatchNorm)
            for name, parameter in module.named_parameters(recurse=False):
                if norm:
                    normal(parameter, 0.2, float(name == "weight"))
                elif parameter.ndim > 1:
                    normal(parameter, 1.2 / max(1, parameter[0].numel()) ** 0.5)
                else:
                    normal(parameter, 0.1, 0.5 if "lambda" in name or "scale" in name else 0.0)
            for name, buffer in module.named_buffers(recurse=False):
                if name == "running_mean":
                    normal(buffer, 0.1)
                elif name == "running_var":
                    buffer.copy_(0.6 + 0.8 * torch.rand(buffer.shape, generator=random))
    return model.float().eval()


def image_model(kind, **settings):
    """A model of the class `kind` of transformers, with the settings of its configuration."""
    chosen = getattr(transformers, kind)
    config = chosen.config_class(**settings)
    return randomized(chosen._from_config(config, attn_implementation="eager"))


def saved(model, folder):
    """The directory of a model, as the hub has it."""
    model.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    config["architectures"] = [type(model).__name__]
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def images(batch, height, width, seed=1):
    """Pixels f32 [batch, 3, height, width]."""
    return torch.randn(batch, 3, height, width, generator=torch.Generator().manual_seed(seed)).numpy()

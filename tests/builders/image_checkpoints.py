"""Tiny image models of transformers with random weights, as directories."""

import json

import torch
import transformers
from torch import nn

VIT = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48, "image_size": 32,
    "patch_size": 8, "num_labels": 5,
}  # fmt: skip
RESNET = {"embedding_size": 8, "hidden_sizes": [8, 16, 16, 24], "depths": [1, 2, 1, 1], "num_labels": 5}
DETR = {
    "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2, "num_queries": 5,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 40, "num_labels": 3,
    "backbone_config": {"model_type": "resnet", **RESNET, "layer_type": "basic", "out_features": ["stage4"]},
}  # fmt: skip
VIT_PREPARATION = '{"size": 32, "image_processor_type": "ViTImageProcessor"}'
"""The preprocessor_config.json of a ViT."""


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

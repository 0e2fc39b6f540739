"""Tiny audio codecs of transformers with random weights, and sounds."""

import numpy as np
import torch
import transformers
from candle_convert.tests.builders.image_checkpoints import randomized

CODEBOOKS = ("codebook.embed", "codebook.embed_sum", "codebook.weight")
"""Endings of the names of codebooks."""


def codec(kind, **settings):
    """A codec of the class `kind` of transformers, whose codebooks hold different vectors. Weights of DAC are small, so
    that tanh and sines of large values do not magnify what rounding changes."""
    model = randomized(transformers.AutoModel.from_config(getattr(transformers, f"{kind}Config")(**settings)))
    random = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            if name.endswith(CODEBOOKS):
                tensor.copy_(torch.randn(tensor.shape, generator=random))
            elif name.endswith(("cluster_usage", "alpha")):
                tensor.copy_(0.5 + torch.rand(tensor.shape, generator=random))
            elif kind == "Dac" and tensor.ndim == 3:
                tensor.mul_(0.4)
    return model


def sound(*shape, seed=1):
    """Chirps and noise f32 of a shape [..., samples], in -1 to 1."""
    random = np.random.default_rng(seed)
    places = np.arange(shape[-1]) / 16000
    chirps = np.sin(2 * np.pi * (random.uniform(100, 900, (*shape[:-1], 1)) + 3000 * places) * places)
    return (0.5 * chirps + 0.05 * random.standard_normal(shape)).astype(np.float32)

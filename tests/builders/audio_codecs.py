"""Tiny audio codecs of transformers with random weights, and sounds."""

import numpy as np
import torch
import transformers
from candle_convert.tests.builders.image_checkpoints import randomized

CODEBOOKS = ("codebook.embed", "codebook.embed_sum", "codebook.weight")
"""Endings of the names of codebooks."""
SEANET = {
    "num_filters": 4, "hidden_size": 16, "codebook_dim": 16, "codebook_size": 32, "upsampling_ratios": [4, 3, 2],
    "sampling_rate": 16000,
}  # fmt: skip
ENCODEC = {**SEANET, "target_bandwidths": [13.4, 26.7, 40.1], "num_lstm_layers": 1}
STEREO = {
    "audio_channels": 2, "normalize": True, "norm_type": "time_group_norm", "use_causal_conv": False,
    "chunk_length_s": 0.02, "overlap": 0.1,
}  # fmt: skip
DAC = {
    "encoder_hidden_size": 4, "decoder_hidden_size": 32, "downsampling_ratios": [2, 4], "n_codebooks": 3,
    "codebook_size": 32, "codebook_dim": 4,
}  # fmt: skip
MIMI = {
    **SEANET, "hidden_size": 32, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16,
    "num_hidden_layers": 2, "intermediate_size": 48, "num_quantizers": 4, "num_semantic_quantizers": 2,
    "vector_quantization_hidden_dimension": 16, "upsample_groups": 32, "sliding_window": 5,
}  # fmt: skip
CASES = {
    "encodec": ("Encodec", ENCODEC),
    "encodec-stereo": ("Encodec", ENCODEC | STEREO),
    "encodec-zeros": ("Encodec", ENCODEC | {"pad_mode": "constant", "num_residual_layers": 2, "num_lstm_layers": 2}),
    "encodec-trimmed": ("Encodec", ENCODEC | {"trim_right_ratio": 0.5, "use_conv_shortcut": False}),
    "encodec-edges": ("Encodec", ENCODEC | {"pad_mode": "replicate", "use_causal_conv": False}),
    "dac": ("Dac", DAC),
    "dac-odd": ("Dac", DAC | {"downsampling_ratios": [3, 2, 2]}),
    "mimi": ("Mimi", MIMI),
    "mimi-mirrored": ("Mimi", MIMI | {"pad_mode": "reflect", "use_conv_shortcut": True, "attention_bias": True}),
}
"""By name: the beginning of the class, and its configuration."""


def codec(kind, **settings):
    """A codec of the class `kind` of transformers, whose codebooks hold different vectors. Weights of DAC are small, so
    that tanh and sines of large values do not magnify what rounding changes."""
    model = randomized(transformers.AutoModel.from_config(getattr(transformers, f"{kind}Config")(**settings)))
    fill_codebooks(model)
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            if kind == "Dac" and not name.endswith("alpha") and tensor.ndim == 3:
                tensor.mul_(0.4)
    return model


def fill_codebooks(model):
    """Fill the codebooks of a codec, which transformers makes of zeros, and what else has to differ from zero."""
    random = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            if name.endswith(CODEBOOKS):
                tensor.copy_(torch.randn(tensor.shape, generator=random))
            elif name.endswith(("cluster_usage", "alpha")):
                tensor.copy_(0.5 + torch.rand(tensor.shape, generator=random))


def sound(*shape, seed=1):
    """Chirps and noise f32 of a shape [..., samples], in -1 to 1."""
    random = np.random.default_rng(seed)
    places = np.arange(shape[-1]) / 16000
    chirps = np.sin(2 * np.pi * (random.uniform(100, 900, (*shape[:-1], 1)) + 3000 * places) * places)
    return (0.5 * chirps + 0.05 * random.standard_normal(shape)).astype(np.float32)

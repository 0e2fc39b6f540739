"""A small MusicGen of transformers with random weights, and a directory of it with a tokenizer."""

import torch
from candle_convert.tests.builders.audio_codecs import fill_codebooks
from candle_convert.tests.builders.trained_tokenizers import byte_bpe
from candle_convert.tests.oracles.transformers import transformers

CODEBOOKS, VOCABULARY = 4, 32
DECODER = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "ffn_dim": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "max_position_embeddings": 64, "num_codebooks": CODEBOOKS, "pad_token_id": VOCABULARY, "bos_token_id": VOCABULARY,
}  # fmt: skip
TEXT = {
    "d_model": 24, "d_kv": 8, "d_ff": 40, "num_layers": 2, "num_heads": 3,
    "feed_forward_proj": "gated-gelu",
}  # fmt: skip
AUDIO = {
    "num_filters": 2, "hidden_size": 8, "codebook_dim": 8, "codebook_size": VOCABULARY, "upsampling_ratios": [4, 2],
    "num_lstm_layers": 1, "target_bandwidths": [60.0],
}  # fmt: skip


def musicgen(channels=1, width=32, words=60):
    """A model with random weights, whose text has `words` tokens."""
    kinds = transformers()
    torch.manual_seed(0)
    config = kinds.MusicgenConfig(
        text_encoder={"model_type": "t5", **TEXT, "vocab_size": words},
        audio_encoder={"model_type": "encodec", **AUDIO},
        decoder={"model_type": "musicgen_decoder", **DECODER, "hidden_size": width, "audio_channels": channels},
    )
    model = kinds.MusicgenForConditionalGeneration(config).float().eval()
    for parameter in model.decoder.parameters():
        parameter.data = torch.randn(parameter.shape) / (parameter.shape[-1] ** 0.5 if parameter.ndim > 1 else 4)
    fill_codebooks(model.audio_encoder)
    for name in ("pad_token_id", "bos_token_id", "decoder_start_token_id"):
        setattr(model.generation_config, name, VOCABULARY)
    return model


def music_folder(path):
    """A directory with a tokenizer."""
    tokenizer = byte_bpe((), 300)
    musicgen(words=tokenizer.get_vocab_size()).save_pretrained(path)
    tokenizer.save(str(path / "tokenizer.json"))
    return path

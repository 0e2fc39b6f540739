"""Tiny checkpoints of Whisper with tokenizer and preprocessor, as transformers reads them; the case of Moonshine."""

import json

import numpy as np
from candle_convert.tests.oracles.transformers import Case, made
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

TEXT = 256
"""Tokens of text: the bytes."""
SPECIAL = [
    "<|endoftext|>",
    "<|startoftranscript|>",
    "<|en|>",
    "<|de|>",
    "<|translate|>",
    "<|transcribe|>",
    "<|startoflm|>",
    "<|startofprev|>",
    "<|nospeech|>",
    "<|notimestamps|>",
]
SECONDS = 2
FIRST = TEXT + len(SPECIAL)
"""The timestamp of 0 seconds."""
VOCABULARY = FIRST + 50 * SECONDS + 1
END, START = TEXT, TEXT + 1
WHISPER = {
    "vocab_size": VOCABULARY,
    "num_mel_bins": 80,
    "d_model": 48,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 80,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "max_source_positions": 50 * SECONDS,
    "max_target_positions": 96,
    "activation_function": "gelu",
    "pad_token_id": END,
    "bos_token_id": END,
    "eos_token_id": END,
    "decoder_start_token_id": START,
    "suppress_tokens": [3, 9],
    "begin_suppress_tokens": [32, END],
    "is_encoder_decoder": True,
}
CLASS = "WhisperForConditionalGeneration"
WHISPERS = [
    Case(name, CLASS, {"architectures": [CLASS], "model_type": "whisper", **config}, WHISPER)
    for name, config in [
        ("whisper", {}),
        ("whisper_large_v3", {"num_mel_bins": 128, "decoder_layers": 1, "encoder_attention_heads": 2,
                              "decoder_attention_heads": 2}),
    ]
]  # fmt: skip
MOONSHINE_CLASS = "MoonshineForConditionalGeneration"
MOONSHINE_CONFIG = {
    "vocab_size": 258, "hidden_size": 48, "intermediate_size": 80, "encoder_num_hidden_layers": 2,
    "decoder_num_hidden_layers": 3, "encoder_num_attention_heads": 4, "decoder_num_attention_heads": 4,
    "max_position_embeddings": 64, "pad_token_id": 257, "bos_token_id": 256, "eos_token_id": 257,
    "decoder_start_token_id": 256, "partial_rotary_factor": 0.9,
}  # fmt: skip
MOONSHINE = Case(
    "moonshine", MOONSHINE_CLASS, {"architectures": [MOONSHINE_CLASS], "model_type": "moonshine"}, MOONSHINE_CONFIG
)


def whisper(case, seed, folder):
    """Write a checkpoint with its tokenizer and preprocessor; the model as transformers reads it."""
    reference = made(case, seed, folder)
    bytes_tokenizer(SPECIAL).save(str(folder / "tokenizer.json"))
    said = {"feature_size": reference.config.num_mel_bins, "chunk_length": SECONDS, "n_samples": 16000 * SECONDS}
    (folder / "preprocessor_config.json").write_text(
        json.dumps({"feature_extractor_type": "WhisperFeatureExtractor", "hop_length": 160, "n_fft": 400, **said})
    )
    return reference


def bytes_tokenizer(special):
    """A tokenizer whose tokens are bytes and special ones."""
    found = Tokenizer(models.BPE({text: at for at, text in enumerate(_alphabet())}, []))
    found.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    found.decoder = decoders.ByteLevel()
    found.add_special_tokens([AddedToken(text, special=True) for text in special])
    return found


def _alphabet():
    """The characters that stand for bytes, by byte."""
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte) if byte in visible else chr(next(others)) for byte in range(256)]


def tones(seconds, seed=0):
    """Samples f32 at 16 kHz: tones that change, and noise."""
    rng = np.random.default_rng(seed)
    count = round(16000 * seconds)
    phases = 2 * np.pi * np.cumsum(np.interp(np.arange(count), [0, count], rng.uniform(200, 3000, 2))) / 16000
    return (0.4 * np.sin(phases) + 0.02 * rng.standard_normal(count)).astype(np.float32)

"""Configurations of encoder-decoders that transformers builds, as hub repositories have them, and inputs for them."""

import json

import numpy as np
from candle_convert.tests.builders.trained_tokenizers import sentencepiece
from candle_convert.tests.oracles.transformers import Case

T5 = {
    "vocab_size": 96,
    "d_model": 64,
    "d_ff": 96,
    "d_kv": 16,
    "num_layers": 2,
    "num_heads": 4,
    "relative_attention_num_buckets": 16,
    "pad_token_id": 0,
    "eos_token_id": 1,
    "decoder_start_token_id": 0,
    "is_encoder_decoder": True,
}
BART = {
    "vocab_size": 97,
    "d_model": 64,
    "encoder_ffn_dim": 96,
    "decoder_ffn_dim": 128,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "max_position_embeddings": 320,
    "pad_token_id": 96,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
    "is_encoder_decoder": True,
}
BARTS = [
    Case(name, cls, {"architectures": [cls], "model_type": kind, **config}, BART)
    for name, cls, kind, config in [
        ("bart", "BartForConditionalGeneration", "bart", {}),
        ("mbart", "MBartForConditionalGeneration", "mbart", {"scale_embedding": True, "activation_function": "relu"}),
        ("marian", "MarianMTModel", "marian", {"scale_embedding": True, "activation_function": "swish"}),
        ("marian_two_vocabularies", "MarianMTModel", "marian",
         {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 99, "activation_function": "swish",
          "d_model": 56}),
        ("m2m_100", "M2M100ForConditionalGeneration", "m2m_100", {"scale_embedding": True}),
        ("pegasus", "PegasusForConditionalGeneration", "pegasus", {"scale_embedding": True}),
    ]
]  # fmt: skip
T5_TOLERANCE = 6e-5
"""T5 does not scale its scores: without fused multiply-add the rounding of torch and ours differs by 3.03e-5."""
ENCODER_DECODERS = [
    Case(name, cls, {"architectures": [cls], "model_type": kind, **config}, T5, tolerance=T5_TOLERANCE)
    for name, cls, kind, config in [
        ("t5", "T5ForConditionalGeneration", "t5", {}),
        ("t5_1_1", "T5ForConditionalGeneration", "t5",
         {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False, "num_decoder_layers": 3, "d_kv": 24,
          "relative_attention_max_distance": 20}),
        ("ul2", "T5ForConditionalGeneration", "t5", {"feed_forward_proj": "gated-silu", "tie_word_embeddings": False}),
        ("mt5", "MT5ForConditionalGeneration", "mt5", {"tie_word_embeddings": False}),
        ("umt5", "UMT5ForConditionalGeneration", "umt5",
         {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}),
    ]
]  # fmt: skip
ENCODER_DECODERS += BARTS


def inputs(case, seed, source=40, target=9):
    """Two calls: one text without a mask, and texts of several lengths with padding, the decoder's too."""
    rng = np.random.default_rng(seed)
    vocabulary, start = case.base["vocab_size"], case.base["decoder_start_token_id"]

    def decoder_ids(batch):
        return np.concatenate([np.full((batch, 1), start), rng.integers(3, vocabulary, (batch, target))], 1)

    length = source - 7
    mask = (np.arange(length) < np.array([[length], [length - 3], [4]])).astype(np.int64)
    batch = np.where(mask, rng.integers(3, vocabulary, (3, length)), case.base["pad_token_id"])
    right = (np.arange(target + 1) < np.array([[target + 1], [target - 1], [2]])).astype(np.int64)
    return {
        "single": {"input_ids": rng.integers(3, vocabulary, (1, source)), "decoder_input_ids": decoder_ids(1)},
        "padded": {
            "input_ids": batch,
            "attention_mask": mask,
            "decoder_input_ids": decoder_ids(3),
            "decoder_attention_mask": right,
        },
    }


T5_SIZE = 320
"""Tokens of T5's tokenizer."""


def with_tokenizer(folder, languages=()):
    """Write T5's kind of tokenizer beside a checkpoint: Unigram, with tokens of languages."""
    content = sentencepiece(
        "unigram",
        T5_SIZE,
        byte_fallback=False,
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
        remove_extra_whitespaces=True,
        normalization_rule_name="nmt_nfkc",
        user_defined_symbols=",".join(languages),
    )
    (folder / "spiece.model").write_bytes(content)
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "T5Tokenizer", "extra_ids": 0}))

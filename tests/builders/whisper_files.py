"""Contents of files of Whisper as OpenAI and CTranslate2 write them, from a model of transformers."""

import json
import re

import numpy as np
from candle_convert.tests.builders.speech_checkpoints import CLASS, WHISPER
from candle_convert.tests.oracles.transformers import Case, made
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers.models.whisper.tokenization_whisper import LANGUAGES

VOCABULARY, END = 51865, 50257
PUBLISHED = Case(
    "whisper_published",
    CLASS,
    {"architectures": [CLASS], "model_type": "whisper", "vocab_size": VOCABULARY, "d_model": 32,
     "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_layers": 1, "decoder_layers": 2,
     "encoder_ffn_dim": 128, "decoder_ffn_dim": 128,
     "max_source_positions": 1500, "eos_token_id": END, "pad_token_id": END, "bos_token_id": END,
     "decoder_start_token_id": END + 1, "begin_suppress_tokens": [32, END]},
    WHISPER,
)  # fmt: skip
SPECIAL = [
    "<|endoftext|>",
    "<|startoftranscript|>",
    *(f"<|{code}|>" for code in list(LANGUAGES)[:99]),
    *(f"<|{name}|>" for name in ("translate", "transcribe", "startoflm", "startofprev", "nospeech", "notimestamps")),
]


def published(seed, folder):
    """A model with the vocabulary of a published one, as transformers reads it."""
    reference = made(PUBLISHED, seed, folder)
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    letters = [chr(byte) if byte in visible else chr(next(others)) for byte in range(256)]
    pairs = [(one, other) for one in letters for other in letters][: END - 256]
    ids = {text: at for at, text in enumerate([*letters, *(one + other for one, other in pairs)])}
    tokenizer = Tokenizer(models.BPE(ids, pairs))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in SPECIAL])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "preprocessor_config.json").write_text(json.dumps({"feature_size": 80, "chunk_length": 30}))
    return reference


def openai_names(reference):
    """The weights under OpenAI's names, and the object ``dims``."""
    parts = {
        r"layers\.(\d+)": r"blocks.\1", "self_attn_layer_norm": "attn_ln", "encoder_attn_layer_norm": "cross_attn_ln",
        "final_layer_norm": "mlp_ln", "self_attn": "attn", "encoder_attn": "cross_attn", "q_proj": "query",
        "k_proj": "key", "v_proj": "value", "out_proj": "out", "fc1": "mlp.0", "fc2": "mlp.2",
        "encoder.layer_norm": "encoder.ln_post", "decoder.layer_norm": "decoder.ln",
        r"embed_positions\.weight": "positional_embedding", "embed_tokens": "token_embedding",
    }  # fmt: skip
    found = {}
    for name, tensor in reference.model.state_dict().items():
        for pattern, text in parts.items():
            name = re.sub(pattern, text, name)
        found[name] = tensor
    config = reference.config
    dims = {
        "n_mels": config.num_mel_bins, "n_vocab": config.vocab_size, "n_audio_ctx": config.max_source_positions,
        "n_audio_state": config.d_model, "n_audio_head": config.encoder_attention_heads,
        "n_audio_layer": config.encoder_layers, "n_text_ctx": config.max_target_positions,
        "n_text_state": config.d_model, "n_text_head": config.decoder_attention_heads,
        "n_text_layer": config.decoder_layers,
    }  # fmt: skip
    return found, dims


def ctranslate2_variables(reference, quantized):
    """The variables of CTranslate2's specification, and aliases; matrices as f32 or int8."""
    state = {name: tensor.numpy() for name, tensor in reference.model.state_dict().items()}
    config, found = reference.config, {}

    def matrix(name, array):
        if not quantized:
            found[name] = array
            return
        scales = (127 / np.abs(array).max(1)).astype(np.float32)
        found[name], found[f"{name}_scale"] = np.rint(array * scales[:, None]).astype(np.int8), scales

    def linear(name, parts):
        rows = [state[f"{part}.weight"] for part in parts]
        matrix(f"{name}/weight", np.concatenate(rows))
        zeros = [
            state.get(f"{part}.bias", np.zeros(len(row), np.float32)) for part, row in zip(parts, rows, strict=True)
        ]
        found[f"{name}/bias"] = np.concatenate(zeros)

    def norm(name, theirs):
        found[f"{name}/gamma"], found[f"{name}/beta"] = state[f"{theirs}.weight"], state[f"{theirs}.bias"]

    for conv in ("conv1", "conv2"):
        for part in ("weight", "bias"):
            found[f"encoder/{conv}/{part}"] = state[f"encoder.{conv}.{part}"]
    for side, count in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        found[f"{side}/num_heads"] = np.int16(config.encoder_attention_heads)
        found[f"{side}/position_encodings/encodings"] = state[f"{side}.embed_positions.weight"]
        norm(f"{side}/layer_norm", f"{side}.layer_norm")
        for i in range(count):
            ours, theirs = f"{side}/layer_{i}", f"{side}.layers.{i}"
            norm(f"{ours}/self_attention/layer_norm", f"{theirs}.self_attn_layer_norm")
            linear(f"{ours}/self_attention/linear_0", [f"{theirs}.self_attn.{part}_proj" for part in "qkv"])
            linear(f"{ours}/self_attention/linear_1", [f"{theirs}.self_attn.out_proj"])
            if side == "decoder":
                norm(f"{ours}/attention/layer_norm", f"{theirs}.encoder_attn_layer_norm")
                linear(f"{ours}/attention/linear_0", [f"{theirs}.encoder_attn.q_proj"])
                linear(f"{ours}/attention/linear_1", [f"{theirs}.encoder_attn.{part}_proj" for part in "kv"])
                linear(f"{ours}/attention/linear_2", [f"{theirs}.encoder_attn.out_proj"])
            norm(f"{ours}/ffn/layer_norm", f"{theirs}.final_layer_norm")
            for at in (0, 1):
                linear(f"{ours}/ffn/linear_{at}", [f"{theirs}.fc{at + 1}"])
    matrix("decoder/embeddings/weight", state["decoder.embed_tokens.weight"])
    return found, {"decoder/projection/weight": "decoder/embeddings/weight"}

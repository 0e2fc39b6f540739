"""A tiny Llama with a tokenizer of letters and bytes, as a GGUF file."""

import candle_convert as cc
import numpy as np

LETTERS = [chr(code) for code in range(32, 127)]
BYTES = [f"<0x{code:02X}>" for code in range(256)]
COUNT = 3 + 256 + 95
TOKENS = ["<unk>", "<s>", "</s>", *BYTES, *("▁" if letter == " " else letter for letter in LETTERS)]
WIDTH, INNER, LAYERS, HEADS = 64, 96, 2, 4


def written(path, *, vocabulary=COUNT, name="llama", **changes):
    """A GGUF file of random weights."""
    random = np.random.default_rng(0)
    shapes = {
        "token_embd.weight": (vocabulary, WIDTH),
        "output.weight": (vocabulary, WIDTH),
        "output_norm.weight": (WIDTH,),
    }
    for layer in range(LAYERS):
        rows = {
            "attn_norm": (WIDTH,),
            "attn_q": (WIDTH, WIDTH),
            "attn_k": (WIDTH, WIDTH),
            "attn_v": (WIDTH, WIDTH),
            "attn_output": (WIDTH, WIDTH),
            "ffn_norm": (WIDTH,),
            "ffn_gate": (INNER, WIDTH),
            "ffn_up": (INNER, WIDTH),
            "ffn_down": (WIDTH, INNER),
        }
        shapes |= {f"blk.{layer}.{row}.weight": shape for row, shape in rows.items()}
    arrays = {
        key: (random.standard_normal(shape) * (0.4 if len(shape) > 1 else 1)).astype(np.float32)
        for key, shape in shapes.items()
    }
    numbers = {
        "context_length": 300,
        "embedding_length": WIDTH,
        "block_count": LAYERS,
        "feed_forward_length": INNER,
        "attention.head_count": HEADS,
    }
    metadata = {"general.architecture": name, **{f"{name}.{key}": np.uint32(value) for key, value in numbers.items()}}
    metadata |= {
        f"{name}.attention.layer_norm_rms_epsilon": np.float32(1e-5),
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": TOKENS,
    }
    kinds = [2, 3, 3, *[6] * len(BYTES), *[1] * len(LETTERS)]
    metadata |= {
        "tokenizer.ggml.scores": -np.arange(len(TOKENS), dtype=np.float32),
        "tokenizer.ggml.token_type": np.array(kinds, np.int32),
    }
    metadata |= {"tokenizer.ggml.bos_token_id": np.uint32(1), "tokenizer.ggml.eos_token_id": np.uint32(2), **changes}
    cc.save_file(arrays, path, metadata=metadata)
    return path

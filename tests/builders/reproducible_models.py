"""Small models and importance matrices from integer arithmetic, equal on every machine."""

import gguf
import numpy as np


def noise(count, seed):
    """About normal float64 numbers: the sum of four bytes of a linear congruential sequence."""
    words = (
        np.arange(1, count + 1, dtype=np.uint64) * np.uint64(6364136223846793005) + np.uint64(seed * 2 + 1)
    ) * np.uint64(2862933555777941757)
    words ^= words >> np.uint64(29)
    words *= np.uint64(0xBF58476D1CE4E5B9)
    parts = sum(((words >> np.uint64(shift)) & np.uint64(0xFF)).astype(np.float64) for shift in (24, 32, 40, 48))
    return (parts - 510.0) / 147.8


def values(shape, seed, dtype=np.float16):
    """Rows of unlike sizes."""
    rows = noise(int(np.prod(shape)), seed).reshape(-1, shape[-1])
    scale = 0.02 * (1.0 + (np.arange(len(rows)) % 7)[:, None] / 4.0)
    return (rows * scale).reshape(shape).astype(dtype)


def shapes(layers=2, embd=256, inner=256, kv=64, vocab=64, experts=0, output=True):
    """Name -> shape of a llama model."""
    found = {"token_embd.weight": (vocab, embd)}
    for layer in range(layers):
        ffn = (
            {
                "ffn_gate_inp": (experts, embd),
                "ffn_gate_exps": (experts, inner, embd),
                "ffn_up_exps": (experts, inner, embd),
                "ffn_down_exps": (experts, embd, inner),
            }
            if experts
            else {"ffn_gate": (inner, embd), "ffn_up": (inner, embd), "ffn_down": (embd, inner)}
        )
        block = {
            "attn_norm": (embd,),
            "attn_q": (embd, embd),
            "attn_k": (kv, embd),
            "attn_v": (kv, embd),
            "attn_output": (embd, embd),
            "ffn_norm": (embd,),
            **ffn,
        }
        found |= {f"blk.{layer}.{name}.weight": shape for name, shape in block.items()}
    found |= {"output_norm.weight": (embd,)} | ({"output.weight": (vocab, embd)} if output else {})
    return found


def write_model(path, dtype=np.float16, keys=None, **lengths):
    """A llama model as GGUF, with tensors in an order of its own."""
    found = shapes(**lengths)
    embd, kv = found["blk.0.attn_k.weight"][1], found["blk.0.attn_k.weight"][0]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("Noise")
    writer.add_file_type(1)
    writer.add_context_length(64)
    writer.add_embedding_length(embd)
    writer.add_block_count(lengths.get("layers", 2))
    writer.add_feed_forward_length(lengths.get("inner", 256))
    writer.add_head_count(embd // 32)
    writer.add_head_count_kv(kv // 32)
    writer.add_layer_norm_rms_eps(1e-5)
    if lengths.get("experts"):
        writer.add_expert_count(lengths["experts"])
        writer.add_expert_used_count(2)
    vocab = found["token_embd.weight"][0]
    writer.add_tokenizer_model("llama")
    writer.add_token_list([f"t{number}" for number in range(vocab)])
    writer.add_token_scores([-float(number) for number in range(vocab)])
    writer.add_token_types([1] * vocab)
    for key, value in (keys or {}).items():
        writer.add_string(key, value)
    for seed, (name, shape) in enumerate(reversed(found.items())):
        plain = len(shape) == 1 or "ffn_gate_inp" in name
        writer.add_tensor(name, values(shape, seed, np.float32 if plain else dtype))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return found


def write_importance(path, found):
    """An importance matrix for all matrices but the embedding; one expert was never used."""
    writer = gguf.GGUFWriter(path, "")
    writer.add_string("general.type", "imatrix")
    writer.add_array("imatrix.datasets", ["some text"])
    writer.add_uint32("imatrix.chunk_count", 5)
    writer.add_uint32("imatrix.chunk_size", 512)
    for seed, (name, shape) in enumerate(found.items()):
        if len(shape) > 1 and name != "token_embd.weight":
            matrices = shape[0] if len(shape) == 3 else 1
            counts = np.arange(3, 3 + matrices, dtype=np.float32)[:, None]
            if matrices > 1:
                counts[1] = 0
            squares = noise(matrices * shape[-1], 1000 + seed).reshape(matrices, shape[-1]) ** 2 + 0.05
            writer.add_tensor(f"{name}.in_sum2", squares.astype(np.float32))
            writer.add_tensor(f"{name}.counts", counts)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


FILE_TYPES = (
    "Q1_0",
    "Q2_0",
    "Q4_0",
    "Q4_1",
    "MXFP4_MOE",
    "Q5_0",
    "Q5_1",
    "IQ2_XXS",
    "IQ2_XS",
    "IQ2_S",
    "IQ2_M",
    "IQ1_S",
    "IQ1_M",
    "TQ1_0",
    "TQ2_0",
    "Q2_K",
    "Q2_K_S",
    "IQ3_XXS",
    "IQ3_S",
    "IQ3_M",
    "Q3_K",
    "IQ3_XS",
    "Q3_K_S",
    "Q3_K_M",
    "Q3_K_L",
    "IQ4_NL",
    "IQ4_XS",
    "Q4_K",
    "Q4_K_S",
    "Q4_K_M",
    "Q5_K",
    "Q5_K_S",
    "Q5_K_M",
    "Q6_K",
    "Q8_0",
    "F16",
    "BF16",
    "F32",
    "COPY",
)
"""Names of llama-quantize for file types."""
LISTED = tuple(name for name in FILE_TYPES if name not in ("Q3_K", "Q4_K", "Q5_K"))
NEED_IMPORTANCE = ("IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ2_M", "IQ1_S", "IQ1_M", "Q2_K_S", "IQ3_XXS", "IQ3_XS")
MODELS = {
    "llama": {},
    "moe": {"layers": 1, "experts": 4, "vocab": 40},
    "odd": {"layers": 2, "embd": 160, "inner": 352, "vocab": 33},
    "tied": {"layers": 1, "output": False},
    "f32": {"layers": 1, "dtype": np.float32},
    "deep": {"layers": 9, "embd": 64, "inner": 64},
}
IMATRIX = ("--imatrix", "imatrix.gguf")
RUNS = (
    *(("llama", (), name) for name in LISTED if name not in NEED_IMPORTANCE),
    *(("llama", IMATRIX, name) for name in LISTED if name not in ("F16", "BF16", "F32", "COPY")),
    *(("moe", IMATRIX, name) for name in ("IQ2_XS", "Q2_K_S", "Q4_K_M", "MXFP4_MOE", "Q5_1")),
    *(("odd", (), name) for name in ("Q4_K_M", "Q2_K", "IQ4_XS", "Q6_K", "Q8_0")),
    *(("tied", (), name) for name in ("Q4_K_M", "Q8_0")),
    *(("f32", (), name) for name in ("Q4_K_M", "F16", "BF16", "COPY")),
    ("llama", ("--pure",), "Q4_K_M"),
    ("llama", ("--leave-output-tensor",), "Q5_0"),
    ("llama", ("--output-tensor-type", "q8_0", "--token-embedding-type", "q4_1"), "Q6_K"),
    ("llama", ("--tensor-type", "attn_v=q8_0", "--tensor-type", "FFN_(up|gate)=iq4_nl"), "Q4_0"),
    ("llama", ("--override-kv", "general.name=str:Other", "--override-kv", "llama.context_length=int:128"), "Q8_0"),
    ("llama", ("--override-kv", "a.b=float:0.25", "--override-kv", "c.d=bool:true"), "Q8_0"),
    ("llama", ("--imatrix", "imatrix.gguf", "--exclude-weights", "ffn"), "Q4_K_M"),
    ("llama", ("--imatrix", "imatrix.gguf", "--include-weights", "ffn_down"), "Q4_K_M"),
    ("deep", ("--prune-layers", "3,7"), "Q4_0"),
    ("deep", ("--prune-layers", "0", "--imatrix", "imatrix.gguf"), "Q5_0"),
)
"""Model, options and type of each comparison."""


def name_of(run):
    """A run as one line of text."""
    model, options, file_type = run
    return " ".join((model, *options, file_type))

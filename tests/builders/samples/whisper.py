"""whisper.cpp sample, by hand."""

import struct
from pathlib import Path

import numpy as np
from candle_convert.tests.builders.sample_arrays import written
from candle_convert.tests.builders.samples.ggml import records


def shapes(state: int) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a model of one encoder and one decoder layer."""
    attention = {
        "query.weight": 2,
        "query.bias": 1,
        "key.weight": 2,
        "value.weight": 2,
        "value.bias": 1,
        "out.weight": 2,
        "out.bias": 1,
    }
    found = {
        "encoder.positional_embedding": (6, state),
        "encoder.conv1.weight": (state, 3, 3),
        "encoder.conv1.bias": (state, 1),
    }
    found |= {"encoder.conv2.weight": (state, state, 3), "encoder.conv2.bias": (state, 1)}
    found |= {"decoder.positional_embedding": (5, state), "decoder.token_embedding.weight": (7, state)}
    for side, final, kinds in (("encoder", "ln_post", ("attn",)), ("decoder", "ln", ("attn", "cross_attn"))):
        blocks = f"{side}.blocks.0"
        vectors = [f"{side}.{final}", *(f"{blocks}.{norm}_ln" for norm in ("mlp", *kinds))]
        found |= {f"{name}.{part}": (state,) for name in vectors for part in ("weight", "bias")}
        found |= {f"{blocks}.{kind}.{name}": (state,) * dims for kind in kinds for name, dims in attention.items()}
        found |= {f"{blocks}.mlp.0.weight": (4 * state, state), f"{blocks}.mlp.0.bias": (4 * state,)}
        found |= {f"{blocks}.mlp.2.weight": (state, 4 * state), f"{blocks}.mlp.2.bias": (state,)}
    return found


def whisper(folder: Path) -> Path:
    state = 2
    out = b"lmgg" + struct.pack("<11i", 7, 6, state, 1, 1, 5, state, 1, 1, 3, 1)
    out += struct.pack("<2i", 3, 4) + np.arange(12, dtype="<f4").tobytes()
    out += struct.pack("<i", 2) + b"".join(struct.pack("<i", len(token)) + token for token in (b"!", b" the"))
    return written(folder / "ggml-tiny.bin", out + records(shapes(state), len(out), 1))


SAMPLES = {"f16": whisper}

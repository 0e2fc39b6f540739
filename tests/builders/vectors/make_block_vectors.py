"""Make quants.npz: rows of many kinds and what libggml encodes them to. CANDLE_LIBGGML names the library (see
libggml.py); needs torch.

    CANDLE_LIBGGML=build/bin python tests/builders/vectors/make_block_vectors.py
"""

import numpy as np
import torch
from candle_convert.runtime.tensor.block_codec import codecs
from candle_convert.tests.builders.paths import EXAMPLES, VECTORS
from candle_convert.tests.oracles import libggml

COLUMNS = 512
EXAMPLE = EXAMPLES / "char_gru.pth"
FRAGILE = ("iq1_", "iq2_", "iq3_")
"""Types whose encoder in libggml stops the process on numbers of about 1e12 and more."""


def real_rows():
    """Weights of the trained example, two rows."""
    weights = torch.load(EXAMPLE, weights_only=True)["model_state_dict"]
    flat = np.concatenate([value.numpy().ravel() for value in weights.values() if value.is_floating_point()])
    return flat[: 2 * COLUMNS].reshape(2, COLUMNS)


def ordinary_rows(random):
    """By kind, two rows each."""
    normal = random.standard_normal((2, COLUMNS))
    sparse = np.where(random.random((2, COLUMNS)) < 0.95, 0, normal)
    sparse[:, 64:128] = 0
    return {
        "gaussian": 0.02 * normal,
        "heavy": 0.02 * random.standard_t(2, (2, COLUMNS)),
        "constant": np.array([[0.37], [-1.25]]).repeat(COLUMNS, 1),
        "zero": np.array([[0.0], [-0.0]]).repeat(COLUMNS, 1),
        "denormal": normal * np.array([[1e-39], [1e-44]]),
        "tiny": normal * np.array([[1e-9], [1e-16]]),
        "large": normal * np.array([[1e3], [1e9]]),
        "one-sided": np.abs(normal) * np.array([[1.0], [-1.0]]),
        "sparse": sparse,
        "integers": random.integers(-9, 10, (2, COLUMNS)),
        "offset": 1 + 0.01 * normal,
        "scales": normal * (10 ** random.uniform(-5, 1, (2, COLUMNS // 16))).repeat(16, 1),
        "powers": np.exp2(random.integers(-20, 5, (2, COLUMNS)))
        * (1 - random.integers(0, 60, (2, COLUMNS)) * 2.0**-24),
        "real": real_rows(),
    }


def main():
    """Write the vectors."""
    oracle = libggml.load()
    random = np.random.default_rng(20)
    ordinary = np.concatenate(list(ordinary_rows(random).values())).astype(np.float32)
    huge = (np.clip(random.standard_normal((2, COLUMNS)), -3, 3) * np.array([[1e30], [1e38]])).astype(np.float32)
    importance = np.exp(2 * random.standard_normal(COLUMNS)).astype(np.float32)
    importance[random.random(COLUMNS) < 0.1] = 0
    held = {"ordinary": ordinary, "huge": huge, "importance": importance}
    for codec in codecs().values():
        if codec.encoder is None:
            continue
        name = codec.dtype.name
        rows = ordinary if name.startswith(FRAGILE) else np.concatenate((ordinary, huge))
        held[f"{name}.weighted"] = oracle.encode(codec.dtype, rows, importance)
        if not codec.needs_importance:
            held[f"{name}.plain"] = oracle.encode(codec.dtype, rows)
    np.savez_compressed(VECTORS / "quants.npz", **held)


if __name__ == "__main__":
    main()

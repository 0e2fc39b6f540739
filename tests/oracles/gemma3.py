"""Gemma 3 in NumPy, the oracle for logits: the exact ones in f64, and how far rounding activations moves them.

Written after the definition of the architecture (norms before and behind both halves of a layer; a sliding window in
five layers of six; rotary positions of two bases), with the weights as libggml dequantizes them. Errors of rounding are
drawn: a program that rounds in the same positions is as far from the exact logits as a draw is.
"""

import functools

import gguf
import numpy as np

from . import libggml

LAYERS, HEADS, SIZE, WIDTH, INNER, WINDOW = 18, 4, 256, 640, 2048, 512
BASES = {True: 1e6, False: 1e4}
"""Of rotary positions, in layers that see all tokens and in those with a window."""
EPSILON = 1e-6


class Gemma3:
    """Gemma 3 270M, with the weights of a GGUF file and the settings of the published configuration."""

    def __init__(self, path):
        library = libggml.load()
        data = np.memmap(path, np.uint8, "r")
        self.weights, self.kinds = {}, {}
        for name, number, offset, size in library.tensors(path):
            name = name.removesuffix(".weight")
            part = name.rpartition(".")[2]
            values = (
                library.floats(number, data[offset : offset + size])
                if number
                else data[offset : offset + size].view(np.float32)
            )
            if not part.endswith("norm"):
                values = values.reshape(-1, {"attn_output": HEADS * SIZE, "ffn_down": INNER}.get(part, WIDTH))
            self.weights[name] = values
            self.kinds[name] = gguf.GGMLQuantizationType(number).name

    @functools.cached_property
    def gram(self):
        """f64 [width, width], with which a change of a hidden row gives the mean square of that of its logits."""
        embedding = self.weights["token_embd"]
        return (embedding.T @ embedding / len(embedding)).astype(np.float64)

    def hidden(self, sequences, rounding=None, window=WINDOW):
        """What the output matrix multiplies, [tokens of all sequences, width]. `rounding`: None or what draws errors;
        `window`: the tokens that a layer with a window sees."""
        rounding = rounding or Exact()
        dtype = rounding.dtype
        ids = np.concatenate(sequences)
        positions = np.concatenate([np.arange(len(each)) for each in sequences])
        owner = np.repeat(np.arange(len(sequences)), [len(each) for each in sequences])
        distance = positions[:, None] - positions
        causal = (distance >= 0) & (owner[:, None] == owner)
        rotations = {is_global: rotation(positions, SIZE, base).astype(dtype) for is_global, base in BASES.items()}
        x = self.weights["token_embd"][ids].astype(dtype) * WIDTH**0.5
        for layer in range(LAYERS):
            block, is_global = f"blk.{layer}.", layer % 6 == 5
            inner = self._norm(x, block + "attn_norm")
            query, key, value = self._products(inner, rounding, *(f"{block}attn_{part}" for part in "qkv"))
            query = self._norm(query.reshape(len(ids), HEADS, SIZE), block + "attn_q_norm")
            query = rounding.halves(rotated(query, rotations[is_global][:, None]))
            key = rounding.halves(rotated(self._norm(key, block + "attn_k_norm"), rotations[is_global]))
            visible = causal & (is_global | (distance < window))
            scores = np.where(visible, query.swapaxes(0, 1) @ key.T * SIZE**-0.5, -np.inf)
            scores = np.exp(scores - scores.max(-1, keepdims=True))
            mixed = scores / scores.sum(-1, keepdims=True) @ rounding.halves(value)
            (mixed,) = self._products(mixed.swapaxes(0, 1).reshape(len(ids), -1), rounding, block + "attn_output")
            x = x + self._norm(mixed, block + "post_attention_norm")
            gate, up = self._products(self._norm(x, block + "ffn_norm"), rounding, block + "ffn_gate", block + "ffn_up")
            (down,) = self._products(rounding.halves(gelu(rounding.halves(gate))) * up, rounding, block + "ffn_down")
            x = x + self._norm(down, block + "post_ffw_norm")
        return rounding.activations(self._norm(x, "output_norm"), self.kinds["token_embd"])

    def logits(self, hidden):
        """f64 [rows, vocabulary] of hidden rows."""
        embedding = self.weights["token_embd"]
        found = np.empty((len(hidden), len(embedding)))
        for start in range(0, len(embedding), 16384):
            found[:, start : start + 16384] = hidden @ embedding[start : start + 16384].astype(np.float64).T
        return found

    def _norm(self, x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPSILON) * self.weights[name]

    def _products(self, x, rounding, *names):
        """Products of the same activations, which are rounded once."""
        x = rounding.activations(x, self.kinds[names[0]])
        return [x @ self.weights[name].astype(x.dtype, copy=False).T for name in names]


def rotation(positions, size, base):
    """Cosines and sines of each position, f64 [positions, 2, size / 2]."""
    angles = positions[:, None] * base ** (-np.arange(0, size, 2) / size)
    return np.stack([np.cos(angles), np.sin(angles)], 1)


def rotated(x, rotation):
    """The pairs of each head, one half of it with the other."""
    first, second = np.split(x, 2, axis=-1)
    cosine, sine = rotation[..., 0, :], rotation[..., 1, :]
    return np.concatenate([first * cosine - second * sine, second * cosine + first * sine], -1)


def gelu(x):
    return x * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x * x * x))) / 2


class Exact:
    """No rounding, in f64."""

    dtype = np.float64

    def activations(self, x, kind):
        return x

    def halves(self, x):
        return x


class Rounded:
    """Errors of rounding, drawn evenly from half a step down to half a step up, in f32 where the step is of 8 bits.

    Args:
        columns: the number of neighbouring activations that share a step, 1/127 of their largest, by the type of
            weights that they meet; None for f32, where a sum of n products is off as if each factor were by 2 ** -24 *
            sqrt(n) of itself (Higham and Mary 2019).
    """

    def __init__(self, seed, columns):
        self._random, self._columns = np.random.default_rng(seed), columns
        self.dtype = np.float32 if columns else np.float64

    def activations(self, x, kind):
        if self._columns is None:
            return x * (1 + self._between(x.shape) * 2.0**-24 * x.shape[-1] ** 0.5)
        blocks = x.reshape(-1, self._columns(kind))
        return (blocks + self._between(blocks.shape) * np.abs(blocks).max(-1, keepdims=True) / 254).reshape(x.shape)

    def halves(self, x):
        """Rounded to f16, in which keys, values and GELU are where activations are of 8 bits."""
        return x if self._columns is None else x * (1 + self._between(x.shape) * 2.0**-11)

    def _between(self, shape):
        return 2 * self._random.random(shape, np.float32) - 1


__all__ = ["Exact", "Gemma3", "Rounded"]

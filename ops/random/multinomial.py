"""Multinomial: classes sampled by their unnormalized log-probabilities."""

from __future__ import annotations

import numpy as np

from ...runtime.ir.op import op
from ...runtime.ir.shape_inference import Inference
from ..cast.cast import element_type
from ..rules.shape_rules import model_error
from .bit_generator import filled, stream


def infer_multinomial(node: Inference) -> None:
    """(batch, sample_size) indices."""
    shape = node.shape(0)
    if shape is not None and len(shape) != 2:
        node.fail(f"its input must have two dims, it has {len(shape)}")
    node.set(
        0,
        element_type(node.attributes["dtype"]),
        (shape[0] if shape is not None else None, node.attributes["sample_size"]),
    )


@op("Multinomial", since=22, types="float", infer=infer_multinomial, random=True)
def multinomial(x: np.ndarray, *, dtype: int = 6, sample_size: int = 1, seed: float | None = None) -> np.ndarray:
    """(batch, sample_size) classes of (batch, classes) log-probabilities, by inverting their distribution function."""
    if x.ndim != 2 or (not x.shape[1] and x.shape[0]):
        raise model_error("Multinomial needs classes", "E-OP-SHAPE", expected="(batch, classes)", found=x.shape)
    logs = x.astype(np.float64)
    chances = np.exp(logs - np.max(logs, axis=1, keepdims=True, initial=-np.inf))
    steps = np.cumsum(chances, axis=1)
    steps = steps / steps[:, -1:]
    drawn = np.asarray(stream(seed).random_sample(filled((len(x), sample_size), "Multinomial")))
    found = [np.searchsorted(row, values, side="right") for row, values in zip(steps, drawn, strict=True)]
    return np.array(found, element_type(dtype).as_numpy()).reshape(len(x), sample_size)

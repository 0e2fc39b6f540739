"""Trained ONNX models against onnxruntime: the largest difference of any output, relative to its greatest magnitude.

    python benchmarks/real_models.py MODEL.onnx ...

Inputs are made up (seed 0) with lengths, ranges and rates that the models take; onnxruntime runs on one thread.
"""

import sys
from pathlib import Path

import candle_convert as cc
import numpy as np
import onnxruntime
from candle_convert.convert.running.feeds import feeds
from candle_convert.runtime.session import Session

SHAPES = {"det": "1x3x320x320", "rec": "1x3x48x320", "cls": "1x3x48x192", "nmp": "1x43844x1"}
"""Shape of the first input, by a part of the file's name."""
LENGTH = 64


def inputs(graph, name):
    """Arrays for all inputs: whole numbers 1 to 14 where a text is encoded, silence at 16 kHz where sound is, noise elsewhere."""
    first = next(value.name for value in graph.inputs if value.name not in graph.weights)
    texts = [f"{first}={shape}" for part, shape in SHAPES.items() if part in name]
    fed, _ = feeds(graph, texts)
    rng = np.random.default_rng(0)
    for key, array in fed.items():
        if key == "sr":
            fed[key] = np.array(16000, array.dtype)
        elif "silero" in name and key == "input":
            fed[key] = rng.normal(0, 0.1, (10 if "sequence" in name else 1, 576)).astype(np.float32)
        elif "silero" in name:
            fed[key] = np.zeros((2, 1, 128) if key == "state" else array.shape, array.dtype)
        elif array.ndim == 2 and array.dtype.kind == "i":
            fed[key] = rng.integers(1, 15, (1, 2048 if "magika" in name else LENGTH)).astype(array.dtype)
        elif "nakdimon" in name:
            fed[key] = rng.integers(1, 15, (1, 80)).astype(array.dtype)
        elif array.ndim == 1 and array.dtype.kind == "i":
            fed[key] = np.full(array.shape, LENGTH, array.dtype)
    return fed


def difference(path):
    """The relative and the absolute difference."""
    graph = cc.open(path)
    fed = inputs(graph, str(path))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    expected = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"]).run(None, fed)
    pairs = [(one.astype(float), other.astype(float)) for one, other in zip(Session(graph).run(None, fed), expected, strict=True) if other.size]
    gaps = [float(np.abs(one - other).max()) for one, other in pairs]
    return max(gap / max(1e-9, float(np.abs(other).max())) for gap, (_, other) in zip(gaps, pairs, strict=True)), max(gaps)


def main():
    print("| model | relative | absolute |\n|---|---|---|")
    for path in map(Path, sys.argv[1:]):
        try:
            print("| {} | {:.1e} | {:.1e} |".format("/".join(path.parts[-2:]), *difference(path)))
        except Exception as error:  # whatever onnxruntime or a model raises is this row's result
            print(f"| {'/'.join(path.parts[-2:])} | {str(error).splitlines()[0][:100]} | |")


if __name__ == "__main__":
    main()

"""A small checkpoint of every architecture: its configuration, and zeros of the shapes that the weights have.

`vectors/small_checkpoints.json.gz` has what tests of the families wrote: the names and shapes of a file's tensors, and
the texts beside them. Language models are made from their rows. To add the checkpoints in folders, run
``python -m candle_convert.tests.builders.small_checkpoints FOLDER ...``.
"""

import functools
import gzip
import json
import sys
from pathlib import Path

import candle_convert as cc
from candle_convert.convert.load.recognise import identified
from candle_convert.runtime.contract.architecture import HF
from candle_convert.runtime.ir.graph import Graph
from candle_convert.runtime.tensor.dtype import DTYPES
from candle_convert.runtime.tensor.element_packing import nbytes
from candle_convert.runtime.tensor.storage import Held
from candle_convert.runtime.tensor.stored_tensor import StoredTensor
from candle_convert.tests.fuzz.synthetic import NAMES, synthetic

FILE = Path(__file__).with_name("vectors") / "small_checkpoints.json.gz"


@functools.cache
def recorded():
    """By the name of an architecture: format, metadata, attached texts, and dtype and shape of each tensor."""
    return json.loads(gzip.decompress(FILE.read_bytes()))


def names():
    """The architectures that have a checkpoint."""
    return sorted({*recorded(), *NAMES})


def small_checkpoint(name):
    """The checkpoint of an architecture as it is opened."""
    if name in recorded():
        case = recorded()[name]
        texts = {file: text.encode() for file, text in case["texts"].items()}
        weights = {each: zeros(dtype, shape) for each, (dtype, shape) in case["weights"].items()}
        return _opened(case["format"], case["metadata"], texts, weights)
    model = synthetic(name, HF)
    weights = {each: zeros(tensor.dtype.name, tensor.shape) for each, tensor in model.weights.items()}
    return _opened("safetensors", {}, {"config.json": json.dumps(model.said).encode()}, weights)


def zeros(dtype, shape):
    """A tensor of zeros."""
    kind = DTYPES[dtype]
    return StoredTensor(kind, tuple(shape), Held(bytes(nbytes(kind, tuple(shape)))))


def _opened(format, metadata, texts, weights):
    attachments = {name: Held(text) for name, text in texts.items()}
    return Graph(format=format, metadata=dict(metadata), attachments=attachments, weights=weights)


def added(folder):
    """The architecture of the checkpoint in a folder, and what is recorded of it."""
    graph = cc.open(folder)
    texts = {name: graph.attachments[name] for name in graph.attachments if name.endswith(("config.json", ".cfg"))}
    return identified(graph)[0].name, {
        "format": graph.format,
        "metadata": {name: value for name, value in graph.metadata.items() if isinstance(value, str | int | float)},
        "texts": {name: bytes(held.read(0, held.nbytes)).decode() for name, held in texts.items()},
        "weights": {name: [tensor.dtype.name, list(tensor.shape)] for name, tensor in graph.weights.items()},
    }


if __name__ == "__main__":
    cases = recorded() | dict(map(added, sys.argv[1:]))
    text = json.dumps(dict(sorted(cases.items())), separators=(",", ":"))
    FILE.write_bytes(gzip.compress(text.encode(), 9, mtime=0))

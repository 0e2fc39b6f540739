"""Tokenizers by path: of a model, of a directory without weights, or of a tokenizer file."""

from __future__ import annotations

import fnmatch
import os
from pathlib import Path
from typing import Any

from ...models.tokenizer import Tokenizer, read
from ...models.tokenizer.readers.locate import READERS
from ...models.tokenizer.writers.gguf_keys import gguf_metadata
from ...models.tokenizer.writers.hf_files import hf_files
from ...models.tokenizer.writers.tokenizer_differences import differing
from ...runtime.base.errors import FormatError, UsageError
from ...runtime.base.units import counted
from ...runtime.ir.graph import Graph
from ...runtime.tensor.file import Source
from ...runtime.tensor.storage import Held, Region
from ..open.open_model import attachments, open_model

COMPANIONS = ("*config.json", "special_tokens_map.json", "added_tokens.json", "merges.txt", "*.jinja")
EMBEDDINGS = (
    "token_embd.weight",
    "model.embed_tokens.weight",
    "transformer.wte.weight",
    "gpt_neox.embed_in.weight",
    "embeddings.word_embeddings.weight",
)
"""Names of the matrix that has a row for each token."""
ROUND_TRIPS = (
    "Hello world",
    " two  spaces ",
    "line\nbreaks\r\n\ttabs",
    "caf\u00e9 na\u00efve \u00dcber",
    "\u4f60\u597d\uff0c\u4e16\u754c",
    "\u3053\u3093\u306b\u3061\u306f \ud55c\uad6d\uc5b4",
    "\u0645\u0631\u062d\u0628\u0627 \u05e9\u05dc\u05d5\u05dd",
    "\u0928\u092e\u0938\u094d\u0924\u0947",
    "\U0001f680 \U0001f469\u200d\U0001f4bb \U0001f1fa\U0001f1f3",
    "def f(x):\n    return x ** 2  # 3.14",
    "12345 67.89 \u00bd",
    "",
    "'quotes' \"and\" `ticks` <tags/>",
)
"""Texts that should come back as they were."""


def open_tokenizer(path: str, **reading: Any) -> tuple[Graph, Tokenizer]:
    """The tokenizer of a model file or directory, or of a tokenizer's own file, with what it was read from.

    Args:
        reading: as `opening.open_model` takes it.
    """
    graph = _graph(path, reading)
    return graph, read(graph)


def _graph(path: str, reading: dict[str, Any]) -> Graph:
    place = Path(path)
    if place.is_dir():
        try:
            return open_model(path, parts=True, **reading)
        except FormatError as error:
            if error.code != "E-DIR-EMPTY":
                raise
        graph = Graph(files=[])
        graph.attachments = attachments(place, graph)
        return graph
    if place.is_file() and any(fnmatch.fnmatchcase(place.name, pattern) for pattern, _ in READERS):
        return _own_file(place)
    graph = open_model(path, parts=True, **reading)
    if graph.format != "gguf" and not graph.attachments and place.is_file():
        graph.attachments = attachments(place.parent, graph)
    return graph


def _own_file(place: Path) -> Graph:
    """A tokenizer's file with those next to it that say more about it."""
    graph = Graph(files=[os.fspath(place)])
    near = attachments(place.parent, graph)
    graph.attachments = {
        name: storage
        for name, storage in near.items()
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in COMPANIONS)
    }
    source = Source(place)
    graph.attachments[place.name] = Region(source, 0, source.size)
    return graph


def embedding_rows(graph: Graph) -> int | None:
    """Rows of the matrix of token embeddings, None where no weight is known to be it."""
    return next(
        (graph.weights[name].shape[0] for name in EMBEDDINGS if name in graph.weights and graph.weights[name].shape),
        None,
    )


def mismatch(graph: Graph, tokenizer: Tokenizer) -> str | None:
    """The mismatch between a model's vocabulary and its embedding; None if they match, padding rows included."""
    rows = embedding_rows(graph)
    if rows is None or rows == len(tokenizer):
        return None
    if rows < len(tokenizer):
        return f"the tokenizer has {counted(len(tokenizer), 'token')}, the embedding has only {counted(rows, 'row')}"
    return (
        f"the embedding has {counted(rows, 'row')}, {rows - len(tokenizer):,} more than the tokenizer has tokens"
        if graph.format == "gguf"
        else None
    )


def as_gguf(graph: Graph, rows: int | None = None) -> Graph:
    """A graph of metadata alone: the tokenizer's keys, made from files or as the GGUF file has them."""
    if any(str(key).startswith("tokenizer.") for key in graph.metadata):
        keys = {key: value for key, value in graph.metadata.items() if str(key).startswith("tokenizer.")}
    else:
        keys = gguf_metadata(graph, str(graph.arch or ""), rows)
    return Graph(files=graph.files, metadata={"general.type": "vocab", **keys}, notes=graph.notes)


def as_files(graph: Graph) -> dict[str, bytes]:
    """The files that transformers loads, made from GGUF metadata; from other files by way of it."""
    return hf_files(as_gguf(graph))


def round_trips(graph: Graph, tokenizer: Tokenizer) -> list[dict[str, Any]]:
    """Texts that do not come back, and carriers (GGUF, tokenizer.json) that change ids."""
    found: list[dict[str, Any]] = []
    for text in ROUND_TRIPS:
        again = tokenizer.decode(tokenizer.encode(text, special=False, add_bos=False, add_eos=False))
        if again != text:
            found.append({"through": "ids", "text": text, "back": again})
    carried = as_gguf(graph)
    files = hf_files(carried)
    others = {
        "gguf": carried,
        "tokenizer.json": Graph(attachments={name: Held(content) for name, content in files.items()}),
    }
    for name, other in others.items():
        found += [{"through": name, "text": text, "back": None} for text in differing(tokenizer, read(other))]
    return found


def parse_ids(texts: tuple[str, ...]) -> list[int]:
    """Ids from words of a command line, with commas or without."""
    words = [word for text in texts for word in text.replace(",", " ").split()]
    wrong = next((word for word in words if not word.isdecimal()), None)
    if wrong is not None:
        raise UsageError("E-TOKENIZER-ID", None, f"{wrong!r} is not a token id", hint="Ids are numbers: 1 15043 3186")
    return [int(word) for word in words]

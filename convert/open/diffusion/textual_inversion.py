"""Textual inversion (Gal et al. 2022, arXiv:2208.01618): learned embeddings, each of them a new word of the prompt."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ....models.schema.weight_layout import concatenated
from ....models.tokenizer.readers.locate import read, settings
from ....runtime.base.dataclass import dataclass
from ....runtime.base.errors import FormatError, UsageError
from ....runtime.base.units import counted
from ....runtime.contract.format import ReadOptions
from ....runtime.ir.graph import Graph
from ....runtime.tensor.storage import Held
from ....runtime.tensor.stored_tensor import StoredTensor
from .. import hub
from ..open_model import CONFIG, read_file

ENCODERS = {"clip_l": "text_encoder", "clip_g": "text_encoder_2"}
"""Parts whose vocabulary grows, by what files for XL call their vectors; those of other files fit one of the parts by
their width."""
EMBEDDING = "embeddings.token_embedding.weight"
NAMELESS = ("emb_params", "*", "string_to_param.*", *ENCODERS)
"""Names of vectors in files that do not name the word, which is that of the file then."""
ADDED, LIBRARY = "added_tokens.json", "tokenizer.json"
PLAIN = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": True, "special": False}
"""A word of the prompt among the added tokens of a tokenizer.json."""
LEGACY_END = 2
"""An `eos_token_id` that stands for the largest id of the vocabulary."""
MOST_VECTORS = 75
"""Vectors of a word, as many as a prompt has tokens."""


@dataclass(frozen=True)
class Learned:
    """The vectors of a word for one text encoder, [vectors, width]."""

    part: str
    vectors: StoredTensor


def add_embeddings(graph: Graph, wanted: Sequence[str], *, offline: bool = False) -> None:
    """Give the text encoders of a model the words of files, each as ``FILE`` or ``FILE=WORD``, in their order.

    Raises:
        UsageError: the word is in the vocabulary already.
        FormatError: vectors that fit no text encoder of the model.
    """
    for text in wanted:
        path, _, word = text.partition("=")
        local = hub.resolve(path, None, offline) if hub.is_uri(path) else Path(path)
        named, learned = _read(graph, local, path)
        word = word or named
        for each in learned:
            _extend(graph, each, word, path)
        graph.event("W-EMBEDDING", f"{path}: {word!r} stands for {counted(learned[0].vectors.shape[0], 'vector')}")
        graph.external_files = [*graph.external_files, str(local)]


def _read(graph: Graph, local: Path, path: str) -> tuple[str, list[Learned]]:
    """The word of a file and its vectors for each text encoder."""
    weights = {
        name: tensor for name, tensor in read_file(local, ReadOptions()).weights.items() if tensor.dtype.is_float
    }
    widths = {part: table.shape[1] for part, (_, table) in _tables(graph).items()}
    learned: dict[str, Learned] = {}
    for name, tensor in weights.items():
        width = tensor.shape[-1] if tensor.shape else 0
        fitting = (part for part, own in widths.items() if own == width and ENCODERS.get(name, part) == part)
        part = next(fitting, None)
        rows = tensor.shape[0] if len(tensor.shape) == 2 else 1
        if part is None or len(tensor.shape) not in (1, 2) or not 0 < rows <= MOST_VECTORS:
            why = f"the vectors {name!r} fit no text encoder of the model"
            expected = f"1 to {MOST_VECTORS} vectors of {' or '.join(map(str, widths.values())) or 'a CLIP encoder'}"
            raise FormatError("E-EMBEDDING", path, why, expected=expected, found=list(tensor.shape))
        if part in learned:
            why, hint = f"holds vectors of several words, such as {name!r}", "Use a file of one word"
            raise FormatError("E-EMBEDDING", path, why, hint=hint)
        learned[part] = Learned(part, StoredTensor(tensor.dtype, (rows, width), tensor.storage))
    if not learned:
        raise FormatError("E-EMBEDDING", path, "holds no vectors of a word", hint="Is it a textual inversion?")
    own = [name for name in weights if name not in NAMELESS]
    return (own[0] if len(own) == 1 else local.stem), list(learned.values())


def _tables(graph: Graph) -> dict[str, tuple[str, StoredTensor]]:
    """The embedding tables of CLIP's text encoders by part, with their names. FormatError for a model without any."""
    found = {
        part: (name, tensor)
        for part in ENCODERS.values()
        if part in graph.parts
        for name, tensor in graph.parts[part].weights.items()
        if name.endswith(EMBEDDING) and len(tensor.shape) == 2
    }
    if not found:
        path = graph.files[0] if graph.files else None
        raise FormatError("E-EMBEDDING", path, "no text encoder has embeddings of CLIP", hint="Use safetensors")
    return found


def _extend(graph: Graph, learned: Learned, word: str, path: str) -> None:
    """Add the rows to a text encoder, and the word with one token for each row to its tokenizer."""
    part = graph.parts[learned.part]
    name, table = _tables(graph)[learned.part]
    folder = learned.part.replace("text_encoder", "tokenizer")
    files = {
        file.removeprefix(f"{folder}/"): held
        for file, held in graph.attachments.items()
        if file.startswith(f"{folder}/")
    }
    inner = Graph(files=graph.files, attachments=files)
    count, vectors, tokenizer = table.shape[0], learned.vectors, read(inner)
    words = words_of(word, vectors.shape[0])
    if not word or re.search(r"\s", word) or any(tokenizer.id_of(each) is not None for each in words):
        why = f"{word!r} cannot be the word of the embedding: it is empty, has spaces, or is in the vocabulary"
        raise UsageError("E-EMBEDDING", path, why, hint=f"Name another one: --embedding {path}=WORD")
    tokens = {token: count + row for row, token in enumerate(words)}
    inner.attachments[ADDED] = _json({**settings(inner, ADDED), **tokens})
    whole = settings(inner, LIBRARY)
    if whole:
        added = [
            *(whole.get("added_tokens") or ()),
            *({**PLAIN, "id": id, "content": each} for each, id in tokens.items()),
        ]
        inner.attachments[LIBRARY] = _json({**whole, "added_tokens": added})
    extended = read(inner)
    if any(extended.id_of(each) != id for each, id in tokens.items()):
        why = f"the tokenizer cannot number {word!r} from {count:,} on, as the text encoder has it"
        raise FormatError("E-EMBEDDING", path, why, hint="Use a tokenizer with as many tokens as the text encoder")
    plain = table.dequantize() if table.qtype is not None else table
    part.weights[name] = concatenated([plain, vectors.cast(plain.dtype)], 0)
    config = dict(settings(part, CONFIG))
    end = config.get("eos_token_id", LEGACY_END)
    config |= {"vocab_size": count + vectors.shape[0], "eos_token_id": count - 1 if end == LEGACY_END else end}
    part.attachments = {**part.attachments, CONFIG: _json(config)}
    graph.attachments = {**graph.attachments, **{f"{folder}/{file}": held for file, held in inner.attachments.items()}}


def words_of(word: str, count: int) -> list[str]:
    """The tokens of a word of several vectors, as diffusers names them."""
    return [word, *(f"{word}_{number}" for number in range(1, count))]


def _json(value: Mapping[str, Any]) -> Held:
    return Held(json.dumps(value).encode())

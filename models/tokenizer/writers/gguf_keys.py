"""GGUF tokenizer writer: the ``tokenizer`` keys that llama.cpp's converter writes for a model directory.

Source: llama.cpp's conversion/base.py (get_vocab_base, _set_vocab_sentencepiece, _set_vocab_rwkv_world and so on).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....runtime.base.errors import FormatError
from ....runtime.base.units import counted
from ....runtime.ir.graph import Graph, Meta
from ..core.tokenizer import Tokenizer
from ..core.vocabulary import UNUSED
from ..readers.gguf import KINDS_OF_MODELS, from_gguf
from ..readers.gguf_engines import PREFIX
from ..readers.locate import companion_files, first_of, read, settings
from .gguf_special import special_keys, templates_of
from .gguf_vocabulary import PADDING_SCORE, Rows, chosen, made
from .tokenizer_differences import differences

UNPREFIXED = ("gemma", "gemma2", "gemma3")
"""Architectures whose text gets no space prefix."""
EXTRA: dict[tuple[str, int | None], dict[str, int]] = {("gemma", None): {"eot": 107}, ("llama", 32016): {"eot": 32010}}
"""Architecture and size of the vocabulary (any if None) -> ids that no file states."""
ADD_BOS: dict[tuple[str, int | None], bool] = {
    ("phi2", None): False,
    ("chatglm", None): False,
    ("llama", 49152): False,
    ("granite", 49152): False,
}
NAMED_ROLES = {
    "glm4": {"eot": "<|user|>", "unk": "<|endoftext|>", "bos": "[gMASK]", "eom": "<|observation|>"},
    "glm4moe": {"eot": "<|user|>", "unk": "<|endoftext|>", "bos": "[gMASK]", "eom": "<|observation|>"},
    "chatglm": {"eos": "<|endoftext|>", "eot": "<|user|>", "unk": "<|endoftext|>"},
}
"""Architecture -> texts of tokens whose roles no file states."""


def gguf_metadata(graph: Graph, architecture: str, rows: int | None, token_types: int | None = None) -> dict[str, Meta]:
    """The keys for the tokenizer among the files of a model directory; empty without a tokenizer.

    What tokenizes differently than before is noted on the graph.

    Args:
        architecture: GGUF's name for it.
        rows: of the token embedding; the vocabulary is filled up to them.
        token_types: kinds of sentences that an encoder tells apart.

    Raises FormatError for a vocabulary of more tokens than there are rows, UnsupportedError for a pre-tokenizer that
    GGUF files do not have.
    """
    name = chosen(graph)
    if name is None:
        return {}
    path = graph.files[0] if graph.files else None
    source = read(graph)
    keys, vocabulary = made(graph, name, source, rows, path)
    filled = _filled(vocabulary, rows, path)
    settings_of_model = companion_files(graph).model
    named = {
        role: token
        for role, name in NAMED_ROLES.get(architecture, {}).items()
        if (token := source.id_of(name)) is not None
    }
    extra = {**_row(EXTRA, architecture, rows, {}), **named, **_unusual(keys["model"], source)}
    library = settings(graph, "tokenizer.json")
    bounded = rows if keys["model"] in ("llama", "t5") else None
    special: dict[str, Any] = dict(
        special_keys(library, companion_files(graph).config, settings_of_model, bounded, extra)
    )
    said = _row(ADD_BOS, architecture, rows, None)
    special |= {"add_bos_token": said} if said is not None else {}
    special |= {"add_space_prefix": False} if architecture in UNPREFIXED and keys["model"] == "llama" else {}
    special |= {"token_type_count": token_types} if token_types is not None else {}
    whole: dict[str, Any] = {
        "model": keys.pop("model"),
        "pre": keys.pop("pre", None),
        **_arrays(filled, bool(keys.pop("scored"))),
        **keys,
        **special,
    }
    metadata = {f"{PREFIX}{key}": _typed(value) for key, value in whole.items() if value is not None}
    metadata |= templates_of(source.templates)
    first = first_of(graph)
    decoder = library.get("decoder") if first is not None and first[0] == "tokenizer.json" else None
    found = differences(source, from_gguf(metadata, path), decoder)
    if found:
        graph.note("W-TOKENIZER-DIFFERS", f"the tokenizer of the GGUF file gives {'; '.join(found)}")
    return metadata


def _unusual(model: str, source: Tokenizer) -> dict[str, int]:
    """Ids of SentencePiece's roles that are others than readers take where a file does not say."""
    usual = KINDS_OF_MODELS[model].roles if model in ("llama", "t5") else {}
    roles = source.vocabulary.roles
    return {role: roles[role] for role, token in usual.items() if role in roles and roles[role] != token}


def _row(table: Mapping[tuple[str, int | None], Any], architecture: str, rows: int | None, absent: Any) -> Any:
    return table.get((architecture, rows), table.get((architecture, None), absent))


def _typed(value: Any) -> Any:
    import numpy

    return numpy.uint32(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _arrays(rows: Rows, scored: bool) -> dict[str, Any]:
    import numpy

    scores = {"scores": numpy.array([row[1] for row in rows], numpy.float32)} if scored else {}
    return {
        "tokens": [row[0] for row in rows],
        **scores,
        "token_type": numpy.array([row[2] for row in rows], numpy.int32),
    }


def _filled(rows: Rows, wanted: int | None, path: str | None) -> Rows:
    """A row for each of the embedding's."""
    if wanted is None:
        return rows
    if len(rows) > wanted:
        why = f"has an embedding of {counted(wanted, 'row')}, and its tokenizer has {counted(len(rows), 'token')}"
        hint = (
            "Is the tokenizer another model's? --tokenizer DIR takes one from elsewhere, --no-tokenizer leaves it out"
        )
        raise FormatError("E-TOKENIZER-ROWS", path, why, hint=hint)
    return [*rows, *((f"[PAD{token}]", PADDING_SCORE, UNUSED) for token in range(len(rows), wanted))]

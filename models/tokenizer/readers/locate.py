"""Tokenizer discovery: in a model's metadata, or among the files next to its weights."""

from __future__ import annotations

import fnmatch
import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ....runtime.base.dataclass import dataclass
from ....runtime.base.errors import FormatError, UnsupportedError
from ....runtime.base.limits import Budget, current
from ....runtime.base.untrusted.json import parse
from ....runtime.ir.graph import Graph
from ....runtime.tensor.storage import Region
from ..core.tokenizer import Tokenizer
from .gguf import PREFIX, from_gguf

if TYPE_CHECKING:
    from ..core.languages import Languages
    from ..core.vocabulary import Vocabulary
    from .tokenizer_json import CompanionFiles

NO_TOKENIZER = "E-TOKENIZER-NONE"
NAMED = "additional_chat_templates/"
HELD = "huggingface."
"""Prefix of the keys of GGUF files that hold files of a model directory; the file's name follows."""


def read(graph: Graph) -> Tokenizer:
    """The tokenizer of a model that was opened: GGUF metadata, or the files of its directory.

    Raises UnsupportedError if the tokenizer is missing or of an unknown format, FormatError where its files
    are damaged.
    """
    if f"{PREFIX}tokens" in graph.metadata:
        return from_gguf(graph.metadata, _path(graph))
    found = first_of(graph)
    if found is not None:
        tokenizer = found[1](graph, found[0])
        tokenizer.find_languages = functools.partial(_languages, graph, tokenizer.vocabulary)
        return tokenizer
    hint = "Use the model's directory with its tokenizer files, or a GGUF file"
    raise UnsupportedError(NO_TOKENIZER, _path(graph), "has no tokenizer", hint=hint)


def _languages(graph: Graph, vocabulary: Vocabulary) -> Languages | None:
    """The languages of a translation model's tokenizer."""
    from ..core.languages import MARKINGS, languages_of

    config = companion_files(graph).config
    source, target = (
        code if isinstance(code, str) else None for code in (config.get("src_lang"), config.get("tgt_lang"))
    )
    named, usual = class_of(graph), _usual_class(graph)
    name = named if named in MARKINGS else usual
    return languages_of(name, vocabulary, config.get("legacy_behaviour") is True, source, target)


CLASSES = {
    "bart": "BartTokenizer", "clip": "CLIPTokenizer", "clip_text_model": "CLIPTokenizer", "marian": "MarianTokenizer",
    "mbart": "MBartTokenizer", "mt5": "T5Tokenizer", "pegasus": "PegasusTokenizer", "roberta": "RobertaTokenizer",
    "t5": "T5Tokenizer", "umt5": "T5Tokenizer", "xlm-roberta": "XLMRobertaTokenizer",
}  # fmt: skip
"""Tokenizer classes by model type, for models that do not name theirs."""


ENDED = ("PegasusTokenizer", "T5Tokenizer", "XLMRobertaTokenizer")
"""Classes of transformers that end every text, whatever `add_eos_token` says."""


def class_of(graph: Graph) -> str:
    """The model's tokenizer class, as transformers names it, without ``Fast``; empty if it is not known."""
    companions = companion_files(graph)
    for settings in (companions.config, companions.model):
        said = settings.get("tokenizer_class")
        if isinstance(said, str):
            return said.removesuffix("Fast")
    return _usual_class(graph)


def _usual_class(graph: Graph) -> str:
    """The tokenizer class of the model type."""
    kind = companion_files(graph).model.get("model_type")
    if kind == "m2m_100":
        return "M2M100Tokenizer" if "vocab.json" in graph.attachments else "NllbTokenizer"
    return CLASSES.get(str(kind), "")


def first_of(graph: Graph) -> tuple[str, Callable[[Graph, str], Tokenizer]] | None:
    """The tokenizer file next to the weights and its reader, or None."""
    for pattern, reader in READERS:
        name = next((name for name in sorted(graph.attachments) if fnmatch.fnmatchcase(name, pattern)), None)
        if name is not None:
            return name, reader
    return None


def _library(graph: Graph, name: str) -> Tokenizer:
    from .tokenizer_json import from_json

    return from_json(text(graph, name), companion_files(graph), templates(graph), _path(graph))


def _sentencepiece(graph: Graph, name: str) -> Tokenizer:
    """A SentencePiece model; files of Llama 3 and GLM-4 of the same name are tiktoken's."""
    from . import chatglm, renumbered_pieces, sentencepiece, tiktoken

    content = data(graph, name)
    if tiktoken.looks_like(content):
        return _tiktoken(graph, name)
    model = sentencepiece.parsed(content, _path(graph))
    config = companion_files(graph).config
    kind = class_of(graph)
    if kind in chatglm.CLASSES:
        return chatglm.from_chatglm(model, added(graph), templates(graph), _path(graph))
    if kind == "M2M100Tokenizer" and "vocab.json" in graph.attachments:
        from . import mapped_pieces

        return mapped_pieces.from_m2m100(model, settings(graph, "vocab.json"), companion_files(graph), _path(graph))
    model = renumbered_pieces.renumbered(model, kind, companion_files(graph)) or model
    unigram = model.kind == sentencepiece.UNIGRAM
    if not unigram and config.get("add_prefix_space") is False:
        model = replace(model, prefixed=False)
    add_bos, add_eos = config.get("add_bos_token"), config.get("add_eos_token")
    return sentencepiece.from_model(
        model,
        added(graph),
        templates(graph),
        path=_path(graph),
        begun=not unigram and config.get("legacy") is False,
        add_bos=add_bos if isinstance(add_bos, bool) else not unigram or kind == "XLMRobertaTokenizer",
        add_eos=add_eos if isinstance(add_eos, bool) and kind not in ENDED else unigram,
    )


def _marian(graph: Graph, name: str) -> Tokenizer:
    from . import mapped_pieces, sentencepiece

    if "vocab.json" not in graph.attachments:
        hint = "Download vocab.json into the same folder"
        raise FormatError("E-TOKENIZER-VOCAB", _path(graph), f"{name} is without vocab.json", hint=hint)
    model = sentencepiece.parsed(data(graph, name), _path(graph))
    return mapped_pieces.from_marian(model, settings(graph, "vocab.json"), companion_files(graph), _path(graph))


def _tiktoken(graph: Graph, name: str) -> Tokenizer:
    from . import tiktoken

    family = tiktoken.family_of(name, companion_files(graph).model.get("model_type"))
    return tiktoken.from_tiktoken(data(graph, name), family, templates(graph), _path(graph), added(graph))


def _tekken(graph: Graph, name: str) -> Tokenizer:
    from . import tekken
    from .tokenizer_json import from_engine

    engine, gate = tekken.engine_of(settings(graph, name), _path(graph))
    told = companion_files(graph)
    return from_engine(
        engine,
        replace(told, config={**tekken.NAMES, **told.config}),
        templates(graph),
        "tekken.json",
        gate,
        _path(graph),
    )


def _rwkv(graph: Graph, name: str) -> Tokenizer:
    from . import rwkv

    return rwkv.from_rwkv(text(graph, name), templates(graph), _path(graph))


def _llama2c(graph: Graph, name: str) -> Tokenizer:
    from . import llama2c

    return llama2c.from_llama2c(data(graph, name), templates(graph), _path(graph))


def _byte_level(graph: Graph, name: str) -> Tokenizer:
    from . import vocab_merges
    from .tokenizer_json import from_engine

    if "merges.txt" not in graph.attachments:
        raise FormatError(
            "E-TOKENIZER-VOCAB",
            _path(graph),
            "vocab.json is without merges.txt",
            hint="Download merges.txt into the same folder",
        )
    companions, kind = companion_files(graph), class_of(graph)
    marked, worded = kind in vocab_merges.ROBERTA, kind == vocab_merges.CLIP
    defaults = vocab_merges.ROBERTA_TOKENS if marked else vocab_merges.CLIP_TOKENS if worded else {}
    companions = replace(companions, config={**defaults, **companions.config})
    build = vocab_merges.clip_bpe if worded else vocab_merges.byte_level_bpe
    engine = build(settings(graph, name), text(graph, "merges.txt"), companions, added(graph), _path(graph))
    if marked:
        vocab_merges.between(engine, companions, _path(graph))
    return from_engine(engine, companions, templates(graph), "vocab.json and merges.txt", path=_path(graph))


def _wordpiece(graph: Graph, name: str) -> Tokenizer:
    from . import vocab_merges
    from .tokenizer_json import from_engine

    engine = vocab_merges.wordpiece(text(graph, name), companion_files(graph), added(graph), _path(graph))
    return from_engine(engine, companion_files(graph), templates(graph), "vocab.txt", path=_path(graph))


READERS: tuple[tuple[str, Callable[[Graph, str], Tokenizer]], ...] = (
    ("tokenizer.json", _library),
    ("tekken.json", _tekken),
    ("source.spm", _marian),
    ("tokenizer.model", _sentencepiece),
    ("spiece.model", _sentencepiece),
    ("sentencepiece*.model", _sentencepiece),
    ("*.tiktoken", _tiktoken),
    ("rwkv_vocab*.txt", _rwkv),
    ("vocab.json", _byte_level),
    ("vocab.txt", _wordpiece),
    ("tokenizer.bin", _llama2c),
)
"""Names of files, the first that is there being taken, and what reads them."""


def companion_files(graph: Graph) -> CompanionFiles:
    """The contents of the JSON files of the model's directory."""
    from .tokenizer_json import CompanionFiles

    names = ("tokenizer_config.json", "special_tokens_map.json", "generation_config.json", "config.json")
    return CompanionFiles(*(settings(graph, name) for name in names))


def settings(graph: Graph, name: str) -> Mapping[str, Any]:
    """A JSON object next to the weights, empty if missing."""
    found = json_value(graph, name, "E-TOKENIZER-JSON")
    return found if isinstance(found, dict) else {}


def json_value(graph: Graph, name: str, code: str) -> Any:
    """The content of a JSON file next to the weights, or of a key of a GGUF file (`HELD`), None if missing; FormatError
    with `code` for other files."""
    storage, held = graph.attachments.get(name), graph.metadata.get(HELD + name)
    if storage is None and not isinstance(held, str):
        return None
    origin = storage.source if isinstance(storage, Region) else _Held(_path(graph) or name, Budget(name, current()))
    return parse(str(held).encode() if storage is None else data(graph, name), origin, 0, code, constants=True)


def added(graph: Graph) -> dict[int, tuple[str, bool]]:
    """Tokens that files next to a vocabulary add to it: text, and whether it is a control token, by id."""
    found = {
        token: (text, False)
        for text, token in settings(graph, "added_tokens.json").items()
        if isinstance(token, int) and 0 <= token < 1 << 24
    }
    said = settings(graph, "tokenizer_config.json").get("added_tokens_decoder")
    for key, token in said.items() if isinstance(said, Mapping) else ():
        if key.isdecimal() and len(key) < 8 and isinstance(token, Mapping) and isinstance(token.get("content"), str):
            found[int(key)] = token["content"], bool(token.get("special", False))
    return found


def templates(graph: Graph) -> dict[str, str]:
    """Chat templates by name: files of their own, or in tokenizer_config.json as a text or a list of named ones."""
    said = settings(graph, "tokenizer_config.json").get("chat_template")
    found = {"default": said} if isinstance(said, str) else {}
    for item in said if isinstance(said, list) else ():
        if isinstance(item, Mapping) and isinstance(item.get("name"), str) and isinstance(item.get("template"), str):
            found[item["name"]] = item["template"]
    for name in graph.attachments:
        if name == "chat_template.jinja":
            found["default"] = text(graph, name)
        elif name.startswith(NAMED) and name.endswith(".jinja"):
            found[name[len(NAMED) : -len(".jinja")]] = text(graph, name)
    return found


def data(graph: Graph, name: str) -> bytes:
    """The bytes of a file next to the weights."""
    storage = graph.attachments[name]
    if isinstance(storage, Region):
        storage.source.budget.charge(storage.nbytes, name)
    return bytes(storage.read(0, storage.nbytes))


def text(graph: Graph, name: str) -> str:
    """The text of a file next to the weights."""
    try:
        return data(graph, name).decode("utf-8")
    except UnicodeDecodeError as error:
        raise FormatError("E-TOKENIZER-TEXT", _path(graph), f"{name} beside it is not UTF-8", at=error.start) from error


@dataclass(frozen=True)
class _Held:
    """Origin of a file that is held in memory."""

    path: str
    budget: Budget


def _path(graph: Graph) -> str | None:
    return graph.files[0] if graph.files else None

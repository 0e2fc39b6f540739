"""Model cards to GGUF: the origin of a model directory as the ``general.*`` keys that llama.cpp's converter writes.

Sources: README.md's front matter (the hub's model card), config.json, generation_config.json, and the name of the
directory, taken apart.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import Error
from ...runtime.ir.graph import Graph
from .front_matter import front_matter

CARD, PARAMETERS, GENERATION = "README.md", "config.json", "generation_config.json"
UNREADABLE = "W-CARD"
"""Note of a card that cannot be read, or a part of it."""
HUB = "https://huggingface.co/"
_SNAPSHOT = re.compile(r"models--(?P<owner>[^/]+?)--(?P<name>[^/]+)/snapshots/[^/]+\Z")
_HUB_ID = re.compile(r"https?://huggingface\.co/([^/]+/[^/]+)\Z")
_VERSION = re.compile(r"(v|iter)?\d+([.]\d+)*", re.IGNORECASE)
_TYPE = re.compile(r"i?q\d(_\w)*|b?fp?(16|32)", re.IGNORECASE)
_SIZE = re.compile(r"(([A]|\d+[x])?\d+([._]\d+)?[KMBT][\d]?|small|mini|medium|large|x?xl)", re.IGNORECASE)
_TUNED = re.compile(r"chat|instruct|vision|lora", re.IGNORECASE)
_NUMBERED = re.compile(r"v\d+(\.\d+)*\Z|\d")
SUFFIXES = "KMBT"

BLOCK = "gguf_metadata"
"""Field of a card for what a GGUF file says and cards have no field for."""
PLAIN = (
    "name",
    "author",
    "version",
    "organization",
    "finetune",
    "basename",
    "description",
    "quantized_by",
    "size_label",
)
CARD_KEYS = {
    **{
        key: (key, f"model_{key}")
        for key in ("name", "author", "version", "organization", "description", "finetune", "basename", "size_label")
    },
    **{f"source.{key}": (key, f"model_{key}") for key in ("url", "doi", "uuid", "repo_url")},
    "license": ("license",),
    "license.name": ("license_name",),
    "license.link": ("license_link",),
}
CARD_KEYS |= {"author": (*CARD_KEYS["author"], "model_creator"), "basename": (*CARD_KEYS["basename"], "model_type")}
"""Our key: where a card may have it, the first that is there being taken."""
LISTS = {"tags": ("tags", "pipeline_tag"), "languages": ("languages", "language")}
SOURCES = {
    "base_model": ("base_model", "base_models", "base_model_sources"),
    "dataset": ("datasets", "dataset", "dataset_sources"),
}
SOURCE_KEYS = ("name", "author", "version", "organization", "description", "url", "doi", "uuid", "repo_url")
ORDER = (
    *PLAIN,
    "license",
    "license.name",
    "license.link",
    "source.url",
    "source.doi",
    "source.uuid",
    "source.repo_url",
)
SAMPLING = {
    "sequence": (("sequence",), str),
    "top_k": (("top_k",), int),
    "top_p": (("top_p",), float),
    "min_p": (("min_p",), float),
    "xtc_probability": (("xtc_probability",), float),
    "xtc_threshold": (("xtc_threshold",), float),
    "temp": (("temperature",), float),
    "penalty_last_n": (("penalty_last_n",), int),
    "penalty_repeat": (("penalty_repeat", "repetition_penalty"), float),
    "mirostat": (("mirostat",), int),
    "mirostat_tau": (("mirostat_tau",), float),
    "mirostat_eta": (("mirostat_eta",), float),
}
"""Key below ``general.sampling``: where generation_config.json has it, and its type."""


@dataclass(frozen=True)
class Name:
    """The parts of a name such as ``owner/Base-8x7B-Instruct-v0.1``, None for missing ones."""

    whole: str | None = None
    organization: str | None = None
    basename: str | None = None
    finetune: str | None = None
    version: str | None = None
    size_label: str | None = None


def general(graph: Graph, parameters: int, size_label: str | None = None) -> dict[str, Any]:
    """The keys below ``general.``, in the order in which they are written; ``name`` is always there.

    Args:
        parameters: weights of the model, against which sizes in names are judged.
        size_label: what it is where neither the card nor a name says it.
    """
    card, config = card_of(graph), _json(graph, PARAMETERS)
    known = config.get("_name_or_path")
    ids = [known] if isinstance(known, str) and known.count("/") <= 1 else []
    found = stated(card, _json(graph, GENERATION), (*ids, folder(graph)), parameters, size_label)
    return {"name": "", **found} if "name" not in found else found


def stated(
    card: Mapping[str, Any],
    generation: Mapping[str, Any],
    ids: Sequence[str] = (),
    parameters: int = 0,
    size_label: str | None = None,
) -> dict[str, Any]:
    """The keys below ``general.`` that a card, a generation_config.json and ids of the model say.

    A card made of a GGUF file (see `card_writer`) says all of them, and nothing but a name is concluded from ids.
    """
    exact = isinstance(card.get(BLOCK), dict)
    found: dict[str, Any] = {}
    for key, places in CARD_KEYS.items():
        value = next((card[place] for place in places if card.get(place) is not None), None)
        if value is not None:
            found[key] = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    for model_id in ids:
        name = parse_model_id(model_id, parameters)
        parts = {
            "name": name.whole and title(name.whole), "organization": name.organization and title(name.organization),
            "basename": name.basename, "finetune": name.finetune, "version": name.version,
            "size_label": name.size_label,
        }  # fmt: skip
        concluded = ("name",) if exact else tuple(parts)
        found = {**{key: parts[key] for key in concluded if parts[key] is not None}, **found}
    if size_label is not None and not exact:
        found.setdefault("size_label", size_label)
    ordered = {**_sampling(generation), **{key: found[key] for key in ORDER if key in found}}
    for key, places in SOURCES.items():
        ordered |= dict(_sources(key, card, places, parameters))
    for key, places in LISTS.items():
        values = [str(item) for place in places for item in _listed(card.get(place))]
        if values:
            ordered[key] = values
    return ordered


def folder(graph: Graph) -> str:
    """The name of the directory of a model; for the hub's cache, that of the repository."""
    path = Path(graph.files[0]).absolute().parent if graph.files else Path()
    snapshot = _SNAPSHOT.search(path.as_posix())
    return f"{snapshot['owner']}/{snapshot['name']}" if snapshot else path.name


def title(text: str) -> str:
    """Words with capitals, but for versions, numbers and what has capitals."""
    words = text.strip().replace("-", " ").split()
    return " ".join(word.title() if word.islower() and not _NUMBERED.match(word) else word for word in words)


def parse_model_id(model_id: str, parameters: int) -> Name:
    """The parts of a model's name as the hub has them; a name with spaces is only a name."""
    if " " in model_id:
        return Name(model_id)
    owner, slash, whole = model_id.partition("/")
    if not slash:
        owner, whole = "", model_id
    pieces = [piece for piece in whole.split("-") if piece]
    kinds = [_kind(piece, index, parameters) for index, piece in enumerate(pieces)]
    words = [word for _, word in kinds]
    marks = [{kind} if kind else set() for kind, _ in kinds]
    if any("size_label" in mark and any(map(str.isdecimal, word)) for mark, word in zip(marks, words, strict=True)):
        for mark, word in zip(marks, words, strict=True):
            if word.isalpha():
                mark.discard("size_label")
    _mark_base(marks, words)

    def joined(kind: str, without: str = "") -> str | None:
        chosen = [word for mark, word in zip(marks, words, strict=True) if kind in mark and without not in mark]
        return "-".join(dict.fromkeys(chosen) if kind == "size_label" else chosen) or None

    size, tuned, version = joined("size_label"), joined("finetune"), joined("version", "basename")
    base = joined("basename") if size or tuned or version else None
    return Name(whole, owner if owner and not owner.startswith(".") else None, base, tuned, version, size)


def _kind(piece: str, index: int, parameters: int) -> tuple[str, str]:
    """The kind of a piece of a name, "" for words without meaning, and its spelling."""
    if _VERSION.fullmatch(piece):
        return "version", piece
    if _TYPE.fullmatch(piece):
        return "type", piece.upper()
    if index and _SIZE.fullmatch(piece):
        return _size(piece.replace("_", "."), parameters)
    return ("finetune", piece) if index and _TUNED.fullmatch(piece) else ("", piece)


def _size(piece: str, parameters: int) -> tuple[str, str]:
    """A size such as 7B; one that is far from the model's own is the length of a context, 128k."""
    if piece[-1].isdecimal():
        piece = f"{piece[:-2]}.{piece[-1]}{piece[-2]}"
    if len(piece) > 1 and piece[-2].isdecimal() and piece[-1] in SUFFIXES.lower():
        piece = piece[:-1] + piece[-1].upper()
    try:
        said = float(piece[:-1]) * 1000.0 ** (SUFFIXES.find(piece[-1]) + 1)
    except ValueError:
        return "size_label", piece
    far = parameters > 0 and abs(said - parameters) > 7 * parameters // 8
    return ("finetune", piece[:-1] + piece[-1].lower()) if far else ("size_label", piece)


def _mark_base(marks: list[set[str]], words: list[str]) -> None:
    """The base name is what the name begins with: words that say nothing else, and versions that words follow."""
    at_start = True
    for mark, word in zip(marks, words, strict=True):
        at_start = at_start and ((not mark and word[0].isalpha()) or "version" in mark)
        if at_start:
            mark.add("basename")
        elif not mark:
            mark.add("finetune")
    for mark in reversed(marks):
        if "basename" not in mark or len(mark) == 1:
            break
        mark.discard("basename")


def _sources(key: str, card: Mapping[str, Any], places: tuple[str, ...], parameters: int) -> Iterator[tuple[str, Any]]:
    """Models or data sets that a model is made of: their number, and what is known of each."""
    import numpy

    place = next((place for place in places if place in card), None)
    if place is None:
        return
    entries = [_source(item, parameters) for item in _listed(card[place])]
    yield f"{key}.count", numpy.uint32(len(entries))
    for number, entry in enumerate(entries):
        yield from ((f"{key}.{number}.{name}", str(entry[name])) for name in SOURCE_KEYS if entry.get(name) is not None)


def _source(item: Any, parameters: int) -> Mapping[str, Any]:
    """One of them: an id of the hub, an address, or a dictionary that says itself what it is."""
    if not isinstance(item, str):
        return item if isinstance(item, dict) else {}
    address = item.startswith(("http://", "https://", "ssh://"))
    on_hub = _HUB_ID.match(item) if address else None
    if address and on_hub is None:
        return {"repo_url": item}
    name = parse_model_id(on_hub[1] if on_hub else item, parameters)
    found = {
        "name": name.whole and title(name.whole),
        "organization": name.organization and title(name.organization),
        "version": name.version,
    }
    if address:
        return found | {"repo_url": item}
    return found | ({"repo_url": f"{HUB}{name.organization}/{name.whole}"} if name.organization and name.whole else {})


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value] if isinstance(value, str) else []


def _sampling(said: Mapping[str, Any]) -> dict[str, Any]:
    """The sampling settings of generation_config.json."""
    import numpy

    make: dict[type, Callable[[Any], Any]] = {int: numpy.int32, float: numpy.float32, str: str}
    found = {}
    for key, (places, kind) in SAMPLING.items():
        value = next((said[place] for place in places if said.get(place) is not None), None)
        fits = (
            isinstance(value, str)
            if kind is str
            else isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1 << 31
        )
        if fits:
            found[f"sampling.{key}"] = make[kind](value)
    return found


def card_of(graph: Graph) -> Mapping[str, Any]:
    """The head of README.md; one that cannot be read is noted and left out."""
    text = _text(graph, CARD)
    try:
        return front_matter(text or "", CARD)
    except Error as error:
        if all(note.code != UNREADABLE for note in graph.notes):
            graph.note(UNREADABLE, f"{CARD} is skipped: {error.why}")
        return {}


def _json(graph: Graph, name: str) -> Mapping[str, Any]:
    try:
        said = json.loads(_text(graph, name) or "{}")
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}


def _text(graph: Graph, name: str) -> str | None:
    storage = graph.attachments.get(name)
    return None if storage is None else bytes(storage.read(0, storage.nbytes)).decode("utf-8", "replace")

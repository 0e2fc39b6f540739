"""GGUF special-token keys: token ids and BOS/EOS flags, from the files of a model directory.

Source: gguf-py's SpecialVocab, whose order of precedence this keeps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from typing import Any, TypeGuard

from ....runtime.base.dataclass import dataclass

ROLES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
MIDDLES = {
    "bos": "bos",
    "eos": "eos",
    "unk": "unknown",
    "sep": "seperator",
    "pad": "padding",
    "mask": "mask",
    "eot": "eot",
    "eom": "eom",
}
"""Role -> the middle of the key of its id; others have none."""
ADDED = ("bos", "eos", "sep")
"""Roles whose adding has a key."""


@dataclass
class SpecialTokens:
    """Special tokens found so far.

    Attributes:
        texts: text of the token with a role.
        added: whether a text gets the token with a role.
        roles: roles that are looked for.
    """

    texts: dict[str, str] = field(default_factory=dict)
    added: dict[str, bool] = field(default_factory=dict)
    roles: tuple[str, ...] = ROLES

    def same(self, text: str, *roles: str) -> bool:
        """Whether a token has one of the roles."""
        return any(self.texts.get(role) == text for role in roles)


def special_keys(
    library: Mapping[str, Any],
    config: Mapping[str, Any],
    model: Mapping[str, Any],
    rows: int | None,
    extra: Mapping[str, int] | None = None,
) -> dict[str, int | bool]:
    """Ids and flags by key, without their prefix.

    Args:
        library: tokenizer.json, empty if missing.
        config: tokenizer_config.json; model: config.json.
        rows: tokens that there are; ids beyond are left out. None where that does not matter.
        extra: ids of roles that are taken where the files do not say them.
    """
    said = SpecialTokens(
        {role: text for role in (*ROLES, "eot", "eom") if (text := token_text(config.get(f"{role}_token"))) is not None}
    )
    if library:
        for role, other in (("bos", "cls"), ("eos", "sep")):
            if role not in said.texts and other in said.texts:
                said.texts[role] = said.texts[other]
        for processor in _processors(library.get("post_processor")):
            _note(said, processor)
    ids: dict[str, int] = {}
    for role in said.roles:
        flag = config.get(f"add_{role}_token")
        if isinstance(flag, bool):
            said.added.setdefault(role, flag)
        found = _added_id(library, said.texts.get(role))
        if found is not None:
            ids[role] = found
    nested = model.get("text_config")
    for role in said.roles:
        value = model.get(f"{role}_token_id")
        value = nested.get(f"{role}_token_id") if value is None and isinstance(nested, Mapping) else value
        if _is_id(value):
            ids.setdefault(role, value)
    for role, token in (extra or {}).items():
        ids.setdefault(role, token)
    found_ids = {
        f"{MIDDLES[role]}_token_id": token
        for role, token in ids.items()
        if role in MIDDLES and (rows is None or token < rows)
    }
    return {**found_ids, **{f"add_{role}_token": flag for role, flag in said.added.items() if role in ADDED}}


def token_text(value: Any) -> str | None:
    """The text of a special token, which is a text or an object that holds it."""
    value = value.get("content") if isinstance(value, Mapping) else value
    return value if isinstance(value, str) else None


def _added_id(library: Mapping[str, Any], text: str | None) -> int | None:
    tokens = library.get("added_tokens")
    for token in tokens if isinstance(tokens, list) else ():
        if isinstance(token, Mapping) and text is not None and token.get("content") == text and _is_id(token.get("id")):
            return int(token["id"])
    return None


def _is_id(value: Any) -> TypeGuard[int]:
    """Whether it is an integer that GGUF can hold as an id."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 32


def _processors(value: Any) -> Iterator[Mapping[str, Any]]:
    parts = value.get("processors", [value]) if isinstance(value, Mapping) else ()
    yield from (part for part in parts if isinstance(part, Mapping))


def _note(said: SpecialTokens, processor: Mapping[str, Any]) -> None:
    """Note the tokens that a post-processor adds to a text."""
    kind = processor.get("type")
    if kind == "ByteLevel":
        said.added.setdefault("bos", False)
        said.added.setdefault("eos", False)
    elif kind == "RobertaProcessing":
        said.added |= {"bos": True, "eos": True, "sep": True}
        for role in ("cls", "sep"):
            pair = processor.get(role)
            if role not in said.texts and isinstance(pair, list) and pair and isinstance(pair[0], str):
                said.texts[role] = pair[0]
    elif kind == "TemplateProcessing":
        _note_template(said, _entries(processor.get("single")), _entries(processor.get("pair")))


def _entries(value: Any) -> list[tuple[str | None, str | None]]:
    """The special token, or the sequence, that each entry of a template is."""
    parts = [part for part in value if isinstance(part, Mapping)] if isinstance(value, list) else []
    return [(_id(part.get("SpecialToken")), _id(part.get("Sequence"))) for part in parts]


def _id(value: Any) -> str | None:
    found = value.get("id") if isinstance(value, Mapping) else None
    return found if isinstance(found, str) else None


def _note_template(
    said: SpecialTokens, single: list[tuple[str | None, str | None]], pair: list[tuple[str | None, str | None]]
) -> None:
    first, last = (single[0][0], single[-1][0]) if len(single) > 1 else (None, None)
    if first is not None:
        if not said.same(first, "bos", "cls"):
            said.texts.setdefault("bos", first)
            said.texts.setdefault("cls", first)
        said.added["bos"] = said.same(first, "bos", "cls")
    if last is not None:
        if not said.same(last, "eos"):
            _demote(said)
            said.texts["eos"] = last
        said.added["eos"] = True
    if pair:
        start = 1 if first is not None and pair[0][0] == first else 0
        stop = len(pair) - 1 if last is not None and pair[-1][0] == last else len(pair)
        _note_separator(said, pair[start:stop], last)


def _demote(said: SpecialTokens) -> None:
    """The token that ended texts ends turns, or messages, when a template ends texts with another."""
    role = next((role for role in ("eot", "eom") if role not in said.roles), None)
    if role is not None and "eos" in said.texts:
        said.roles = (*said.roles, role)
        said.texts[role] = said.texts["eos"]


def _note_separator(said: SpecialTokens, pair: list[tuple[str | None, str | None]], last: str | None) -> None:
    """Whether there is a separator between two texts."""
    if len(pair) < 3 or pair[0][1] != "A" or pair[-1][1] != "B":
        return
    between = [token for token, _ in pair[1:-1]]
    known = [token for token in between if token is not None and said.same(token, "sep", "eos")]
    added = bool(between[0] in known and last is None) or (len(between) == 2 and between[1] in known)
    said.added["sep"] = added
    if added and "eos" in said.texts:
        said.texts.setdefault("sep", said.texts["eos"])


def templates_of(named: Mapping[str, str]) -> dict[str, Any]:
    """Keys of chat templates: the usual one, and others under their names with a list of them."""
    clean = {
        "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in name): text
        for name, text in named.items()
    }
    others = sorted(_filled(name for name in clean if name != "default"))
    found: dict[str, Any] = {f"tokenizer.chat_template.{name}": clean[name] for name in others}
    if others:
        found["tokenizer.chat_templates"] = others
    return found | ({"tokenizer.chat_template": clean["default"]} if "default" in clean else {})


def _filled(names: Iterable[str]) -> list[str]:
    return [name for name in names if name]

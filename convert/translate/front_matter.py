"""Front matter: the YAML header of a model card as plain values, with limits on nesting and without aliases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...runtime.base.errors import FormatError

LONGEST = 1 << 18
"""Characters of front matter that are read; cards of the hub have a few thousand."""
DEPTH = 64
LINE = "---"


def front_matter(text: str, path: str | None = None) -> dict[str, Any]:
    """The keys in the front matter of a card, empty without front matter: strings, numbers, booleans, None, lists and
    dicts only.

    Raises FormatError for what is not YAML, or more than a card has.
    """
    lines = text.splitlines()
    if not lines or lines[0] != LINE:
        return {}
    end = lines.index(LINE, 1) if LINE in lines[1:] else len(lines)
    content = "\n".join(lines[1:end]).replace("\t", "  ") + "\n"
    if len(content) > LONGEST:
        most = f"at most {LONGEST:,} characters"
        raise FormatError(
            "E-CARD", path, "the front matter of the model card is too long", expected=most, found=f"{len(content):,}"
        )
    value = _value(content.replace("- no\n", '- "no"\n'), path)
    return value if isinstance(value, dict) else {}


def written(card: Mapping[str, Any]) -> str:
    """Plain values as the head of a card, from which `front_matter` reads them again."""
    import yaml

    dumper: Any = type("Dumper", (yaml.SafeDumper,), {"ignore_aliases": lambda self, data: True})
    dumper.add_representer(str, _quoted)
    content = yaml.dump(dict(card), Dumper=dumper, sort_keys=False, allow_unicode=True, width=LONGEST)
    return f"{LINE}\n{content}{LINE}\n"


def _quoted(dumper: Any, text: str) -> Any:
    """Represent a string; text with line breaks is quoted, so that no line of it looks like YAML."""
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if text.isprintable() else '"')


def _value(content: str, path: str | None) -> Any:
    """The value of a document, built from its events without recursion."""
    import yaml

    root: list[Any] = []
    open_: list[tuple[Any, list[Any]]] = []
    try:
        for event in _events(content):
            if isinstance(event, yaml.AliasEvent):
                raise FormatError(
                    "E-CARD", path, "the front matter of the model card has aliases", at=event.start_mark.index
                )
            if isinstance(event, yaml.SequenceStartEvent | yaml.MappingStartEvent):
                if len(open_) >= DEPTH:
                    raise FormatError(
                        "E-CARD",
                        path,
                        "the front matter of the model card is nested too deeply",
                        expected=f"at most {DEPTH} levels",
                    )
                open_.append((event, []))
            elif isinstance(event, yaml.SequenceEndEvent | yaml.MappingEndEvent):
                begun, items = open_.pop()
                value = items if isinstance(begun, yaml.SequenceStartEvent) else _mapping(items)
                (open_[-1][1] if open_ else root).append(value)
            elif isinstance(event, yaml.ScalarEvent):
                (open_[-1][1] if open_ else root).append(_scalar(event))
    except yaml.YAMLError as error:
        why = f"the front matter of the model card is not valid YAML: {' '.join(str(error).split())[:200]}"
        raise FormatError("E-CARD", path, why) from error
    return root[0] if root else None


def _events(content: str) -> Iterator[Any]:
    import yaml

    yield from yaml.parse(content, Loader=yaml.SafeLoader)


def _mapping(items: list[Any]) -> dict[Any, Any]:
    """Pairs as a dictionary; keys that are lists or dictionaries are left out."""
    pairs = zip(items[::2], items[1::2], strict=True)
    return {key: value for key, value in pairs if not isinstance(key, list | dict)}


def _scalar(event: Any) -> Any:
    """A text, or what a plain word stands for."""
    import yaml

    if event.style is not None or event.tag not in (None, "!"):
        return event.value
    resolver = yaml.resolver.Resolver()
    kind = resolver.resolve(yaml.ScalarNode, event.value, (True, False)).rpartition(":")[2]
    word = event.value.replace("_", "")
    if kind == "null":
        return None
    if kind == "bool":
        return word.lower() in ("yes", "true", "on")
    try:
        return int(word) if kind == "int" else float(word) if kind == "float" else event.value
    except ValueError:
        return event.value

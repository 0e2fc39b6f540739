"""Recipes in TOML: reading, lookup by name, and writing from rules.

::

    base = "q4_k"                 # a type, or a mix whose rules follow after these
    on_fallback = "error"         # or warn
    [[rule]]                      # the first that matches a tensor decides
    match = 'blk\\.(\\d+)\\.attn_v\\.weight'
    when = "layer < n//8"         # see `Decider.facts`
    type = "q6_k"                 # or keep
    [metadata]
    "general.license" = "apache-2.0"
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ....runtime.base.errors import UsageError
from ....runtime.base.system_error import read_error
from ....runtime.tensor.dtype import DTYPES, plain_name
from ...translate.gguf_file_type import BY_NAME, BY_TYPE, FILE_TYPES
from .mix import mix, mix_named
from .rule import KEEP, Recipe, Rule, type_named

FOLDER = Path(__file__).parents[1] / "recipes"
KEYS = {"base": str, "on_fallback": str, "rule": list, "metadata": dict}
RULE_KEYS = {"match", "type", "when"}
ON_FALLBACK = ("warn", "error")
LONGEST = 16 * 2**20
"""Bytes of a recipe file."""


def find(text: str) -> Recipe:
    """The recipe of a file, else the built-in one, else the mix, with that name."""
    path = Path(text)
    if path.suffix == ".toml" or path.exists():
        return read(path)
    name = text.lower()
    if name in built_in():
        return read(FOLDER / f"{name}.toml")
    if name in BY_NAME:
        return mix_named(name)
    known = ", ".join((*built_in(), *(each.name for each in FILE_TYPES)))
    raise UsageError("E-RECIPE-NAME", None, f"unknown recipe {text!r}", hint=f"Use a .toml file, or one of: {known}")


def built_in() -> list[str]:
    """Names of the recipes that come with the package besides the mixes."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def title(name: str) -> str:
    """The first line of a built-in recipe, which says what it is."""
    with open(FOLDER / f"{name}.toml", encoding="utf-8") as file:
        return file.readline().removeprefix("#").strip()


def source(name: str, recipe: Recipe) -> str:
    """The text of a recipe that `find` gives for `name`: the file's own, or made from the mix."""
    path = Path(name)
    if path.suffix != ".toml" and not path.exists():
        path = FOLDER / f"{name.lower()}.toml"
    if path.exists():
        return path.read_text(encoding="utf-8")
    return to_toml(recipe, f"{recipe.name}: {BY_NAME[recipe.name].title}")


def read(path: Path) -> Recipe:
    """The recipe in a file; UsageError says what is wrong with it."""
    import tomllib

    try:
        if path.stat().st_size > LONGEST:
            raise UsageError("E-RECIPE", path, f"is larger than {LONGEST >> 20} MiB", hint="Is it a recipe?")
        with open(path, "rb") as file:
            table = tomllib.load(file)
    except OSError as error:
        raise read_error(path, error, "E-IO-OPEN") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError("E-RECIPE", path, f"is not valid TOML: {error}") from error
    return parse(table, path.stem, path)


def parse(table: Mapping[str, Any], name: str, path: Path | None = None) -> Recipe:
    """The recipe in a TOML table."""

    def refuse(why: str, hint: str = "See candle-convert recipes show q4_k_m") -> UsageError:
        return UsageError("E-RECIPE", path, why, hint=hint)

    for key, value in table.items():
        if key not in KEYS:
            raise refuse(f"has {key!r}, which is not a key of recipes", f"Keys: {', '.join(KEYS)}")
        if not isinstance(value, KEYS[key]):
            raise refuse(f"has {key!r} of the wrong kind")
    if "base" not in table:
        raise refuse(
            "does not name its base type", 'Use base = "q4_k", or base = "keep" to change only what rules match'
        )
    on_fallback = table.get("on_fallback", "warn")
    if on_fallback not in ON_FALLBACK:
        raise refuse(f"has on_fallback = {on_fallback!r}", f"It is one of: {', '.join(ON_FALLBACK)}")
    rules = tuple(_rule(number, row, refuse) for number, row in enumerate(table.get("rule", ()), 1))
    base, below = _base(table["base"])
    return Recipe(name, base.base, rules + below, on_fallback, tuple(table.get("metadata", {}).items()), base.file_type)


def _base(name: str) -> tuple[Recipe, tuple[Rule, ...]]:
    """The base of a recipe: a type alone, or a mix with its rules."""
    text = plain_name(name)
    if text == KEEP:
        return Recipe(KEEP, None), ()
    if text in DTYPES or text not in BY_NAME:
        dtype = type_named(name)
        return Recipe(text, dtype, file_type=BY_TYPE[text].number if text in BY_TYPE else None), ()
    found = mix(BY_NAME[text])
    return found, found.rules


def _rule(number: int, row: Any, refuse: Any) -> Rule:
    if (
        not isinstance(row, dict)
        or not {"match", "type"} <= row.keys() <= RULE_KEYS
        or not all(isinstance(value, str) for value in row.values())
    ):
        raise refuse(f"rule {number} is not made of match, type and when, each of them text")
    rule = Rule(row["match"], row["type"], row.get("when", ""))
    rule.check()
    return rule


def to_toml(recipe: Recipe, comment: str = "") -> str:
    """A recipe as TOML that `parse` understands."""
    lines = [f"# {line}" for line in comment.splitlines()]
    lines.append(f"base = {_text(KEEP if recipe.base is None else recipe.base.name)}")
    lines.append(f"on_fallback = {_text(recipe.on_fallback)}")
    for rule in recipe.rules:
        lines += ["", "[[rule]]", f"match = {_text(rule.match)}"]
        lines += [f"when = {_text(rule.when)}"] if rule.when else []
        lines.append(f"type = {_text(rule.type)}")
    if recipe.metadata:
        lines += ["", "[metadata]", *(f"{_text(key)} = {_value(value)}" for key, value in recipe.metadata)]
    return "\n".join(lines) + "\n"


def _text(text: str) -> str:
    plain = "'" not in text and text.isprintable()
    return (
        f"'{text}'"
        if plain and ("\\" in text or '"' in text)
        else json.dumps(text, ensure_ascii=True).replace("\x7f", "\\u007f")
    )


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value) if isinstance(value, int | float) else _text(str(value))

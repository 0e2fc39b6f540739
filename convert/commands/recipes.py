"""``recipes``: quantization recipes of the package, and their rules as TOML."""

from __future__ import annotations

import click

from ...runtime.base.errors import printable
from ..cli import shared_options
from ..console.output import current

GROUP = "Tools"
EPILOG = """\b
Examples
  candle-convert recipes list
  candle-convert recipes show q4_k_m
  candle-convert recipes show q4_k_m > mine.toml
"""
LIST_EPILOG = """\b
Examples
  candle-convert recipes list
  candle-convert recipes list --json
  candle-convert quantize model.gguf q.gguf Q5_K_M --dry-run
"""
SHOW_EPILOG = """\b
Examples
  candle-convert recipes show q4_k_m
  candle-convert recipes show balanced_4bit > mine.toml
  candle-convert recipes show mine.toml --json
"""


def _names() -> list[str]:
    from ..quantize.recipe.recipe import built_in
    from ..translate.gguf_file_type import FILE_TYPES

    return [*built_in(), *(each.name for each in FILE_TYPES)]


RECIPE = shared_options.Names("recipe", _names)


@click.group("recipes", epilog=EPILOG)
def COMMAND() -> None:  # noqa: N802
    """List and show quantization recipes.

    A recipe is a TOML file with a base type and rules; the first rule that matches a tensor decides its type. Use it
    with quantize --recipe.
    """


@COMMAND.command("list", epilog=LIST_EPILOG)
@shared_options.options()
def list_recipes() -> None:
    """List the mixes of llama.cpp's file types, and the recipes that come with the package."""
    from ..quantize.recipe import recipe as recipes
    from ..quantize.recipe.mix import mix
    from ..translate.gguf_file_type import FILE_TYPES

    named = [(name, recipes.find(name), recipes.title(name)) for name in recipes.built_in()]
    named += [(each.name, mix(each), each.title) for each in FILE_TYPES]
    rows = [
        {
            "name": name,
            "file_type": found.file_type,
            "base": found.base and found.base.name,
            "rules": len(found.rules),
            "title": title,
        }
        for name, found, title in named
    ]
    lines = [
        [
            row["name"],
            "" if row["file_type"] is None else row["file_type"],
            row["base"] or "",
            row["rules"],
            row["title"],
        ]
        for row in rows
    ]
    current().table(("recipe", "file type", "base", "rules", "what it is"), lines, right=(1, 3), prose=(4,))
    current().emit({"recipes": rows})


@COMMAND.command("show", epilog=SHOW_EPILOG)
@click.argument("name", metavar="NAME", type=RECIPE)
@shared_options.options()
def show(name: str) -> None:
    """Show a recipe as TOML, by name or file.

    Conditions can use: layer and n (blocks), index and count (of the tensors that the rule's pattern matches), depth,
    experts, gqa, arch, imatrix, tied, columns, rows, matrices, block (of the base type) and dtype.
    """
    from ..quantize.recipe import recipe as recipes

    found = recipes.find(name)
    text = recipes.source(name, found)
    for line in text.rstrip("\n").split("\n"):
        current().say(printable(line))
    rules = [{"match": rule.match, "when": rule.when, "type": rule.type} for rule in found.rules]
    base = None if found.base is None else found.base.name
    current().emit(
        {
            "name": found.name,
            "base": base,
            "on_fallback": found.on_fallback,
            "file_type": found.file_type,
            "rules": rules,
            "toml": text,
        }
    )

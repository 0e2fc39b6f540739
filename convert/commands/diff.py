"""``diff``: differences between two models, across formats and dtypes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ...runtime.base.errors import printable
from ...runtime.base.units import counted
from ..cli import option_values, shared_options
from ..cli.number import Number
from ..console.output import current

if TYPE_CHECKING:
    from ..compare.diff import Change, Difference

GROUP = "Inspect and check"
EPILOG = """\b
Examples
  candle-convert diff model.gguf model.pth --atol 1e-3 --no-metadata
  candle-convert diff model-dir/ model.gguf
  candle-convert diff a.pth b.gguf --rename '^model\\.=' --names-only --json
"""
SHOWN = 60


@click.command("diff", epilog=EPILOG)
@click.argument("a", type=shared_options.PATH)
@click.argument("b", type=shared_options.PATH)
@click.option("--atol", type=Number(min=0), default=0.0, metavar="X", help="Values may differ by X + RTOL * |b|.")
@click.option(
    "--rtol", type=Number(min=0), default=0.0, metavar="X", help="See --atol. With a tolerance, dtypes may also differ."
)
@shared_options.INCLUDE
@shared_options.EXCLUDE
@click.option("--rename", multiple=True, metavar="RE=REPL", help="Map names of A to names of B: 'model\\.(.*)=\\1'.")
@click.option("--names-only", is_flag=True, help="Compare names, dtypes and shapes; read no values.")
@click.option("--metadata/--no-metadata", default=True, help="Compare metadata and tokenizer files (default: yes).")
@click.option("--all", "all_rows", is_flag=True, help="List equal tensors too.")
@click.option("--from-b", metavar="FMT", type=shared_options.FORMAT, help="Format of B; --from is that of A.")
@shared_options.options(shared_options.READING, shared_options.PROGRESS)
def COMMAND(a: str, b: str, **values: Any) -> int:  # noqa: N802
    """Compare models A and B: names, dtypes, values, metadata.

    Formats and dtypes may differ: values are compared as numbers. If names follow two conventions, as in a Hugging Face
    directory and a GGUF file, tensors are matched by the architecture of both models, and only the hyper-parameters
    of the metadata are compared. Exits with 1 when anything differs, or when the names cannot be matched.
    """
    from ..compare.diff import diff

    found = diff(
        option_values.open_input(a, values, upgraded=False, parts=True),
        option_values.open_input(b, values | {"source_format": values["from_b"]}, upgraded=False, parts=True),
        atol=values["atol"],
        rtol=values["rtol"],
        include=values["include"],
        exclude=values["exclude"],
        rename=[shared_options.pair(text, "RE=REPL") for text in values["rename"]],
        values=not values["names_only"],
        metadata=values["metadata"],
        progress=option_values.progress(values),
    )
    show(found, all_rows=values["all_rows"])
    current().emit({"inputs": [a, b], **found.to_json()}, ok=found.same)
    return 0 if found.same else 1


def show(found: Difference, *, all_rows: bool) -> None:
    """The result as text."""
    say = current().say
    if found.differing or (all_rows and found.rows):
        current().lines(found.table(all_rows=all_rows))
    key = "metadata" if found.architecture is None else "setting"
    for title, changes in ((key, found.metadata), ("files", found.files), ("graph", found.graph)):
        for change in changes:
            say(f"{title}  {printable(str(change.name))}  {change.status}{_sides(change)}")
    counts: dict[str, int] = {}
    for row in found.rows:
        counts[row.status] = counts.get(row.status, 0) + 1
    summary = ", ".join(_tally(count, status) for status, count in counts.items()) or "no tensors"
    keys = ("metadata key", "metadata keys") if found.architecture is None else ("setting", "settings")
    parts = (
        (found.metadata, keys),
        (found.files, ("file", "files")),
        (found.graph, ("part of the graph", "parts of the graph")),
    )
    others = [counted(len(changes), *forms) for changes, forms in parts if changes]
    total = sum(len(changes) for changes, _ in parts)
    differ = f"; {' and '.join(others)} {'differs' if total == 1 else 'differ'}" if others else ""
    by = "" if found.architecture is None else f", by the names of the architecture {found.architecture}"
    say(f"{'✓' if found.same else '✗'} {counted(len(found), 'tensor')}: {summary}{differ}{by}")


def _tally(count: int, status: str) -> str:
    """``1 differs``, ``16 differ``, ``3 equal``."""
    return counted(count, verb=status) if status == "differs" else f"{count:,} {status}"


def _sides(change: Change) -> str:
    sides = [_short(side) for side in (change.a, change.b) if side is not None]
    return f"  {' → '.join(sides)}" if sides else ""


def _short(value: Any) -> str:
    text = printable(str(value)[: SHOWN + 1])
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"

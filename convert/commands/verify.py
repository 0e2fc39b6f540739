"""``verify``: whether a model is a faithful conversion of another, with a certificate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from .. import arguments
from ..output import current

if TYPE_CHECKING:
    from ..certifying import Verification

EPILOG = """\b
Examples
  candle-convert verify model.safetensors q4.gguf
  candle-convert verify model.gguf q4.gguf --certificate q4.verify.json
  candle-convert verify model.pth model.gguf --level sample --json
"""
SHOWN, FEW = 20, 5
"""Tensors that are listed where some fail, and where none does."""


@click.command("verify", epilog=EPILOG)
@click.argument("source", metavar="SRC", type=arguments.PATH)
@click.argument("made", metavar="DST", type=arguments.PATH)
@click.option("--level", default="full", type=click.Choice(["full", "sample"]), help="All values, or parts of each tensor.")
@click.option("--certificate", metavar="FILE.json", type=arguments.PATH, help="Write the verdict, with the SHA-256 of all files.")
@click.option("-f", "--force", is_flag=True, help="Replace an existing certificate.")
@click.option("--all", "all_rows", is_flag=True, help="List all tensors, not only the worst.")
@click.option("--threads", type=click.IntRange(1), help="Comparing threads (default: the cores, at most 4).")
@click.option("--from-dst", metavar="FMT", type=arguments.FORMAT, help="Format of DST; --from is that of SRC.")
@arguments.options(arguments.CHOOSING, arguments.PROGRESS, arguments.READING)
def COMMAND(source: str, made: str, **values: Any) -> int:  # noqa: N802 (the name that the registry looks for)
    """Check that DST holds the tensors of SRC, each within its type.

    Plain values may be rounded to their type; quantized blocks have bounds for the error of each block and of the whole tensor. Exits with 1
    when a tensor is missing, changed or further off.
    """
    from ..certifying import verify

    before = arguments.open_input(source, values)
    after = arguments.open_input(made, values | {"source_format": values["from_dst"]})
    found = verify(
        before, after, level=values["level"], select=arguments.selection(values), threads=values["threads"], progress=arguments.progress(values)
    )
    show(found, all_rows=values["all_rows"])
    _write(found, values)
    current().emit({"inputs": [source, made], **found.to_json()}, ok=found.ok)
    return 0 if found.ok else 1


def _write(found: Verification, values: dict[str, Any]) -> None:
    path = values["certificate"]
    if path is not None:
        import json

        from ..replacing import replacing

        with replacing(path, force=values["force"]) as file:
            file.write(json.dumps(found.certificate(), indent=2, ensure_ascii=False).encode() + b"\n")
        current().say(f"  certificate {path}")


def show(found: Verification, *, all_rows: bool) -> None:
    """The worst tensors and the verdict."""
    worst = [row for row in found.worst(SHOWN if found.failed else FEW) if row.snr_db is not None or not row.ok]
    rows = found.tensors if all_rows else worst
    if rows:
        current().say(found.table(rows))
    count = len(found.tensors)
    equal = sum(row.status == "equal" for row in found.tensors)
    within = sum(row.status == "within" for row in found.tensors)
    looked = "" if found.level == "full" else ", by samples"
    failed = f", {len(found.failed)} failed" if found.failed else ""
    current().say(f"{'✓' if found.ok else '✗'} {count} tensors: {equal} equal, {within} within the bounds of their type{failed}{looked}")

"""``check``: whether a model file keeps every rule of its format."""

from __future__ import annotations

from typing import Any

import click

from ...runtime.errors import printable
from .. import arguments
from ..output import current, human_size

EPILOG = """\b
Examples
  candle-convert check model.safetensors
  candle-convert check model-dir/ --json
  candle-convert check model.pth --strict
"""


@click.command("check", epilog=EPILOG)
@click.argument("path", metavar="FILE|DIR|hf://...", type=arguments.PATH)
@click.option("--strict", is_flag=True, help="Warnings too make it fail.")
@arguments.options(arguments.READING, arguments.PROGRESS)
def COMMAND(path: str, strict: bool, **values: Any) -> int:  # noqa: N802 (the name that the registry looks for)
    """Check a model: format rules, checksums, every byte.

    Exits with 1 when there are errors, with 3 when the file cannot be read at all.
    """
    from ..check import check
    from ..findings import counts

    checked = check(
        path, arguments.read_options(values), format=values["source_format"], revision=values["revision"], offline=values["offline"],
        progress=arguments.progress(values),
    )
    code = checked.exit_code or int(strict and any(finding.severity == "warning" for finding in checked.findings))
    out = current()
    if checked.findings:
        out.lines(checked.table())
    read = f"{checked.tensors} tensors, {human_size(checked.nbytes)} read"
    out.say(f"{'✗' if code else '✓'} {printable(path)}: {read}; {counts(checked.findings)}")
    out.emit(checked.to_json(), ok=not code)
    return code

"""``scan``: whether files are safe to open with other programs."""

from __future__ import annotations

from typing import Any

import click

from ...runtime.errors import UsageError
from .. import arguments
from ..output import current

EPILOG = """\b
Examples
  candle-convert scan downloads/
  candle-convert scan model.pth config.json --strict --json
  candle-convert scan --names
"""


@click.command("scan", epilog=EPILOG)
@click.argument("paths", metavar="PATH...", nargs=-1, type=arguments.PATH)
@click.option("--strict", is_flag=True, help="Warnings too make it fail, with 1.")
@click.option("--names", is_flag=True, help="List the names that a pickle may hold.")
@click.option("--allow-global", multiple=True, metavar="NAME", help="Further pickle names to accept: 'omegaconf.*'.")
@click.option("--revision", metavar="REV", help="Revision of an hf:// repository.")
@click.option("--offline", is_flag=True, help="hf:// from the cache only.")
@arguments.options(arguments.PROGRESS)
def COMMAND(paths: tuple[str, ...], strict: bool, names: bool, **values: Any) -> int:  # noqa: N802 (the name that the registry looks for)
    """Look for code in files: pickles, archives, templates.

    Every file below PATH is read, whatever its name; nothing is executed, but chat templates are rendered, in a sandboxed process with limits.
    Exits with 0 when all was read and nothing is dangerous, with 5 when something is, with 3 (or the error's code) when a file could not be read
    whole.
    """
    out = current()
    if names:
        from ...formats.containers.pickle_names import ACCEPTED

        for name in sorted(ACCEPTED):
            out.say(name)
        out.emit({"names": sorted(ACCEPTED)})
        return 0
    if not paths:
        raise UsageError("E-OPTION", None, "missing argument PATH", hint="candle-convert scan --help")
    from ..scan import scan

    found = scan(
        paths, allow_globals=values["allow_global"], revision=values["revision"], offline=values["offline"], progress=arguments.progress(values)
    )
    code = found.exit_code or int(strict and any(finding.severity == "warning" for finding in found.findings))
    out.lines(found.table())
    if code and out.quiet:
        for line in found.table().split("\n"):
            out.complain(line)
    out.emit({"inputs": list(paths), **found.to_json()}, ok=not code)
    return code

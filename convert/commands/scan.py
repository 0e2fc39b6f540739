"""``scan``: security scan of files before other programs open them."""

from __future__ import annotations

from typing import Any

import click

from ...runtime.base.errors import UsageError
from ..cli import option_values, shared_options
from ..console.output import current

GROUP = "Inspect and check"
EPILOG = """\b
Examples
  candle-convert scan downloads/
  candle-convert scan model.pth config.json --strict --json
  candle-convert scan --names
"""


@click.command("scan", epilog=EPILOG)
@click.argument("paths", metavar="PATH...", nargs=-1, type=shared_options.PATH)
@click.option("--strict", is_flag=True, help="Exit with 1 on warnings.")
@click.option("--names", is_flag=True, help="List the names allowed in pickles.")
@click.option("--allow-global", multiple=True, metavar="NAME", help="Further pickle names to accept: 'omegaconf.*'.")
@click.option("--revision", metavar="REV", help="Revision of an hf:// repository.")
@click.option("--offline", is_flag=True, help="hf:// from the cache only.")
@shared_options.options(shared_options.PROGRESS)
def COMMAND(paths: tuple[str, ...], strict: bool, names: bool, **values: Any) -> int:  # noqa: N802
    """Scan files for code: pickles, archives, templates.

    Every file below PATH is read, whatever its name. Nothing is executed, except that chat templates are rendered in a
    sandboxed process with limits. Exits with 0 if all files were read and nothing is dangerous, with 5 if something is,
    with 3 (or the code of the error) if a file could not be read completely.
    """
    out = current()
    if names:
        from ...formats.containers.torch.allowed_names import ACCEPTED

        for name in sorted(ACCEPTED):
            out.say(name)
        out.emit({"names": sorted(ACCEPTED)})
        return 0
    if not paths:
        raise UsageError("E-OPTION", None, "missing argument PATH", hint="candle-convert scan --help")
    from ..check.scan import scan

    found = scan(
        paths,
        allow_globals=values["allow_global"],
        revision=values["revision"],
        offline=values["offline"],
        progress=option_values.progress(values),
    )
    code = found.exit_code or int(strict and any(finding.severity == "warning" for finding in found.findings))
    out.lines(found.table())
    if code and out.quiet:
        for line in found.table().split("\n"):
            out.complain(line)
    out.emit({"inputs": list(paths), **found.to_json()}, ok=not code)
    return code

"""``check``: verifies that model files follow every rule of their formats."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...runtime.base.errors import Error, UsageError, printable
from ...runtime.base.units import counted
from ..cli import option_values, shared_options
from ..console.output import current, human_size

if TYPE_CHECKING:
    from ..check.check import Checked

GROUP = "Inspect and check"
EPILOG = """\b
Examples
  candle-convert check model.safetensors
  candle-convert check downloads/*.gguf model-dir/ --json
  candle-convert check model.pth --strict
"""


@click.command("check", epilog=EPILOG)
@click.argument("paths", metavar="FILE|DIR|hf://...", nargs=-1, required=True, type=shared_options.PATH)
@click.option("--strict", is_flag=True, help="Treat warnings as errors.")
@shared_options.options(shared_options.READING, shared_options.PROGRESS)
def COMMAND(paths: tuple[str, ...], strict: bool, **values: Any) -> int:  # noqa: N802
    """Check models: format rules, checksums, every byte.

    Exits with 1 when there are errors, with 3 when a file cannot be read at all. All given models are checked; the exit
    code is the largest of theirs. A directory of separate models is checked model by model.
    """
    models = [each for path in paths for each in _models(path, values)]
    reports = [_report(model, strict, values, alone=len(models) == 1) for model in models]
    code = max(report["exit_code"] for report in reports)
    if len(reports) == 1:
        del reports[0]["exit_code"], reports[0]["path"]
        current().emit(reports[0], ok=not code)
        return code
    rows = [
        (
            "✗" if report["exit_code"] else "✓",
            _severe(report, "error", "danger"),
            _severe(report, "warning"),
            f"{report['tensors']:,}",
            human_size(report["bytes"]),
            report["path"],
        )
        for report in reports
    ]
    current().table(("", "errors", "warnings", "tensors", "size", "model"), rows, right=(1, 2, 3, 4))
    failed = sum(report["exit_code"] != 0 for report in reports)
    current().say(
        f"{'✗' if code else '✓'} {counted(len(reports), 'model')}: {len(reports) - failed} passed, {failed} failed"
    )
    joined = {key: [item for report in reports for item in report[key]] for key in ("inputs", "findings")}
    sums = {key: sum(report[key] for report in reports) for key in ("tensors", "bytes")}
    current().emit({**joined, **sums, "models": reports}, ok=not code)
    return code


def _models(path: str, values: dict[str, Any]) -> Iterator[str]:
    """The path, or the models of a directory that holds several. A file next to an index that does not name it is an
    error, as it is where the directory is opened."""
    if not os.path.isdir(path) or values["source_format"] is not None:
        yield path
        return
    from ..open.model_directory import INDEX, weights
    from ..open.open_model import open_model

    try:
        open_model(path, option_values.read_options(values), upgraded=False, dequantized=False)
    except UsageError as error:
        if error.code != "E-DIR-CHOICE":
            raise
        names = weights(Path(path))
        if not any(name.endswith(INDEX) for name in names):
            yield from (os.path.join(path, name) for name in names)
            return
    except Error:
        pass  # checking says so
    yield path


def _report(path: str, strict: bool, values: dict[str, Any], *, alone: bool) -> dict[str, Any]:
    """Print the findings of a model; an error that ends its reading is raised if it is the only one."""
    from ..check.check import check
    from ..check.finding import Located, counts

    reading = {"format": values["source_format"], "revision": values["revision"], "offline": values["offline"]}
    try:
        checked: Checked = check(
            path, option_values.read_options(values), **reading, progress=option_values.progress(values)
        )
    except Error as error:
        if alone:
            raise
        found = Located.of_error(error.file or path, error)
        current().say(f"✗ {error}")
        return {
            "path": path,
            "exit_code": error.exit_code,
            "inputs": [path],
            "tensors": 0,
            "bytes": 0,
            "findings": [found.to_json()],
        }
    code = checked.exit_code or int(strict and any(finding.severity == "warning" for finding in checked.findings))
    if checked.findings:
        current().lines(checked.table())
    read = f"{counted(checked.tensors, 'tensor')}, {human_size(checked.nbytes)} read"
    current().say(f"{'✗' if code else '✓'} {printable(path)}: {read}; {counts(checked.findings)}")
    return {"path": path, "exit_code": code, **checked.to_json()}


def _severe(report: dict[str, Any], *severities: str) -> int:
    return sum(finding["severity"] in severities for finding in report["findings"])

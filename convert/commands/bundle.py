"""``bundle``: a folder that runs one model with Python and NumPy, without compiling."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import click

from ...runtime.base.errors import UsageError, printable
from ...runtime.base.units import counted, human_size
from ..bundle import MANIFEST
from ..cli import shared_options
from ..cli.output_folder import check_output, staged
from ..console.output import current

GROUP = "Tools"
EPILOG = """\b
Examples
  candle-convert bundle model.gguf -o app/
  candle-convert bundle minilm_dir -o app/ --cpu avx2,avx512 --zip
  candle-convert bundle vit_dir -o app/ --request requests.jsonl
"""


@click.command("bundle", epilog=EPILOG)
@click.argument("model", type=shared_options.PATH)
@click.option("-o", "--output", "--outfile", metavar="DIR", required=True, help="New folder for the bundle.")
@click.option(
    "--cpu",
    metavar="LEVEL,...",
    help="Instruction levels of its machine code, such as avx2,avx512 (default: processors such as this one).",
)
@click.option(
    "--request", metavar="FILE.jsonl", help="Requests that it will be asked (default: a sample of each operation)."
)
@click.option("--zip", "zipped", is_flag=True, help="Also write DIR.zip.")
@click.option("-f", "--force", is_flag=True, help="Replace an existing folder.")
@shared_options.options()
def COMMAND(model: str, output: str, **values: Any) -> None:  # noqa: N802
    """Make a folder that runs a model without compiling.

    The folder holds the model, machine code of its kernels, and the Python files that it needs. 'python DIR' answers
    JSON lines, 'python DIR --http 8080' answers over HTTP. It needs Python and NumPy, and what its requirements.txt
    names; Numba and LLVM are not needed. The samples are answered by the bundle before it appears under its name.
    """
    from ..bundle.make_bundle import make_bundle

    out, place = current(), Path(os.path.abspath(output))
    archive = place.with_name(f"{place.name}.zip") if values["zipped"] else None
    others = () if archive is None else (archive,)
    check_output(place, MANIFEST, model, force=values["force"], others=others)
    levels = None if values["cpu"] is None else values["cpu"].split(",")
    requests = None if values["request"] is None else _requests(values["request"])
    with staged(place) as fresh:
        made = make_bundle(model, fresh, levels, requests)
    if archive is not None:
        shutil.make_archive(str(place), "zip", place)
    out.say(f" needs    {' '.join(made.packages)}")
    out.say(f" answers  {' '.join(made.operations)}")
    out.say(
        f"✓ {printable(output)}  {human_size(made.code)} of code, {human_size(made.model)} of model, "
        f"{counted(made.kernels, 'kernel')}"
    )
    out.emit({
        "inputs": [model], "outputs": [{"path": output}, *([{"path": str(archive)}] if archive else [])],
        "code_bytes": made.code, "model_bytes": made.model, "kernels": made.kernels, "variants": list(made.variants),
        "packages": list(made.packages), "operations": list(made.operations),
    })  # fmt: skip


def _requests(path: str) -> list[Any]:
    try:
        with open(path, encoding="utf-8") as file:
            return [json.loads(line) for line in file if line.strip()]
    except ValueError as error:
        raise UsageError("E-OPTION", path, f"--request takes a JSON object a line: {error}") from error

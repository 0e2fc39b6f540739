"""``page``: a folder of static files that runs one model in a browser."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from ...runtime.base.errors import printable
from ...runtime.base.units import human_size
from ..cli import option_values, shared_options
from ..cli.output_folder import check_output, staged
from ..console.output import current, notes_json
from ..page import MANIFEST

GROUP = "Tools"
EPILOG = """\b
Examples
  candle-convert page model.gguf -o site/ --dtype q8
  candle-convert page whisper_dir -o site/ --runtime ~/npm --title Dictation
  candle-convert page yolov8n.pt -o site/ --install
"""
DTYPES = ("f32", "f16", "q8", "q4", "q4f16")


@click.command("page", epilog=EPILOG)
@click.argument("model", type=shared_options.PATH)
@click.option("-o", "--output", "--outfile", metavar="DIR", required=True, help="New folder for the page.")
@click.option("--dtype", type=click.Choice(DTYPES), default="f32", help="Precision of the model (default f32).")
@click.option("--title", metavar="TEXT", help="Heading of the page (default: the name of MODEL).")
@click.option(
    "--runtime",
    metavar="DIR",
    type=shared_options.PATH,
    help="Folder with node_modules (default: this folder and those above it).",
)
@click.option("--install", is_flag=True, help="Let npm install the packages into --runtime, or this folder, first.")
@click.option("-f", "--force", is_flag=True, help="Replace an existing page.")
@shared_options.options(shared_options.PROGRESS)
def COMMAND(model: str, output: str, **values: Any) -> None:  # noqa: N802
    """Make a page that runs a model in the browser.

    The folder holds the model as ONNX, and copies of Transformers.js or onnxruntime-web, which npm installs: any web
    server can serve it, and it loads nothing from elsewhere. Pages generate, translate and transcribe text, and draw
    boxes and masks on pictures, on WebGPU or WASM.
    """
    from ..page import npm_packages
    from ..page.make_page import make_page

    out, folder = current(), Path(os.path.abspath(output))
    check_output(folder, MANIFEST, model, force=values["force"])
    runtime = None if values["runtime"] is None else Path(values["runtime"])
    if values["install"]:
        npm_packages.install(runtime or Path.cwd())
    with staged(folder) as fresh:
        made = make_page(
            model,
            fresh,
            dtype=values["dtype"],
            title=values["title"],
            runtime=runtime,
            progress=option_values.progress(values),
        )
    out.warn(made.notes)
    out.say(f" runs     {made.kind} with {' and '.join(made.packages)}")
    out.say(f" serve    python3 -m http.server -d {printable(output)}")
    out.say(f"✓ {printable(output)}  {human_size(made.model)} of model, {human_size(made.code)} of code")
    out.emit({
        "inputs": [model], "outputs": [{"path": output}], "kind": made.kind, "model_bytes": made.model,
        "code_bytes": made.code, "packages": list(made.packages), "warnings": notes_json(made.notes),
    })  # fmt: skip

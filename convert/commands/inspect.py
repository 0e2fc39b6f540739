"""``inspect``: what is in a model file, from its headers alone."""

from __future__ import annotations

from typing import Any

import click

from ...runtime.errors import printable
from .. import arguments
from ..output import current, human_size, notes_json

EPILOG = """\b
Examples
  candle-convert inspect model.safetensors
  candle-convert inspect model-dir/ --include attn --json
  candle-convert ls checkpoint.pth --key model_state_dict
"""
SHOWN = 60


@click.command("inspect", epilog=EPILOG)
@click.argument("path", metavar="FILE|DIR|hf://...", type=arguments.PATH)
@click.option("--include", metavar="RE", multiple=True, help="Only tensors whose name matches.")
@arguments.options(arguments.READING)
def COMMAND(path: str, include: tuple[str, ...], **values: Any) -> None:  # noqa: N802 (the name that the registry looks for)
    """List the tensors, metadata and attached files of a model. Reads headers only."""
    from ...runtime.metadata import to_json
    from ...runtime.passes.select import Select

    graph = arguments.open_input(path, values)
    whole, count = graph.nbytes, len(graph)
    Select(include=include).run(graph)
    out = current()
    out.say(f"{graph.format} · {len(graph.files)} file(s) · {count} tensors · {human_size(whole)}")
    rows = [(name, tensor.dtype.name, _shape(tensor.shape), human_size(tensor.nbytes)) for name, tensor in graph.weights.items()]
    out.table(("tensor", "dtype", "shape", "size"), rows, right=(3,))
    for title, lines in (
        ("metadata", [f"{printable(str(key))} = {_short(value)}" for key, value in graph.metadata.items()]),
        ("files", [f"{printable(name)}  {human_size(storage.nbytes)}" for name, storage in graph.attachments.items()]),
    ):
        if lines:
            out.say(f"\n{title}")
        for line in lines:
            out.say(f"  {line}")
    if out.json:
        out.emit(
            {
                "inputs": graph.files,
                "format": graph.format,
                "bytes": whole,
                "tensors": [
                    {"name": name, "dtype": tensor.dtype.name, "shape": list(tensor.shape), "bytes": tensor.nbytes}
                    for name, tensor in graph.weights.items()
                ],
                "metadata": {str(key): to_json(value) for key, value in graph.metadata.items()},
                "files": {name: storage.nbytes for name, storage in graph.attachments.items()},
                "warnings": notes_json(graph.notes),
            }
        )


def _shape(shape: tuple[int, ...]) -> str:
    return "[" + ", ".join(str(length) for length in shape) + "]"


def _short(value: Any) -> str:
    text = str(value.tolist()) if hasattr(value, "tolist") and getattr(value, "size", 0) <= SHOWN else str(value)
    text = printable(text[: SHOWN * 4])
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"

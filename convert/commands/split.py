"""``split``: one model in several files."""

from __future__ import annotations

import dataclasses
from typing import Any

import click

from .. import arguments, destination
from .convert import carry_out

EPILOG = """\b
Examples
  candle-convert split model.safetensors parts/ --shard-size 2GB
  candle-convert split model.gguf out/model.gguf --shard-tensors 100
  candle-convert split model-dir/ out-dir/ --shard-size 5GB --dry-run --json
"""


@click.command("split", cls=destination.Writing, epilog=EPILOG)
@click.argument("path", metavar="IN", type=arguments.PATH)
@destination.output
@arguments.options(arguments.SHARDING, arguments.OUTPUT, arguments.CARRYING, arguments.PLACING, arguments.READING)
def COMMAND(path: str, output: str, **values: Any) -> None:  # noqa: N802 (the name that the registry looks for)
    """Cut model IN into shards of --shard-size or --shard-tensors.

    OUT is a directory, or a name such as out/model.gguf that becomes out/model-00001-of-00003.gguf. The format stays that of IN unless
    --to names another.
    """
    from .. import sharding

    graph = arguments.open_input(path, values, dequantized=False)
    options = dataclasses.replace(arguments.convert_options(values), to=values["to"] or graph.format)
    carry_out(sharding.split(graph, path, output, options), values)

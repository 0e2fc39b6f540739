"""``split``: splits a model into shards."""

from __future__ import annotations

import dataclasses
from typing import Any

import click

from ..cli import option_values, output_path, shared_options
from .convert import run_plan

GROUP = "Convert"
EPILOG = """\b
Examples
  candle-convert split model.safetensors parts/ --shard-size 2GB
  candle-convert split model.gguf out/model.gguf --shard-tensors 100
  candle-convert split model-dir/ out-dir/ --shard-size 5GB --dry-run --json
"""


@click.command("split", cls=output_path.Writing, epilog=EPILOG)
@click.argument("path", metavar="IN", type=shared_options.PATH)
@output_path.output
@shared_options.options(
    shared_options.SHARDING,
    shared_options.OUTPUT,
    shared_options.CARRYING,
    shared_options.PLACING,
    shared_options.READING,
)
def COMMAND(path: str, output: str, **values: Any) -> None:  # noqa: N802
    """Split model IN into shards of --shard-size or --shard-tensors.

    OUT is a directory, or a name such as out/model.gguf for shards out/model-00001-of-00003.gguf. The format is that of
    IN unless --to is given.
    """
    from ..write import shard

    graph = option_values.open_input(path, values, dequantized=False)
    options = dataclasses.replace(option_values.convert_options(values), to=values["to"] or graph.format)
    run_plan(shard.split(graph, path, output, options), values)

"""``merge``: joins shards into one file."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import click

from ..cli import option_values, output_path, shared_options
from .convert import run_plan

GROUP = "Convert"
EPILOG = """\b
Examples
  candle-convert merge parts/model-00001-of-00003.gguf model.gguf
  candle-convert merge model.safetensors.index.json model.safetensors
  candle-convert merge model-dir/ model.safetensors --no-tokenizer --dry-run
"""


@click.command("merge", cls=output_path.Writing, epilog=EPILOG)
@click.argument("inputs", metavar="IN...", nargs=-1, required=True, type=shared_options.PATH)
@output_path.output
@shared_options.options(shared_options.OUTPUT, shared_options.CARRYING, shared_options.PLACING, shared_options.READING)
def COMMAND(inputs: tuple[str, ...], output: str, **values: Any) -> None:  # noqa: N802
    """Join shards IN into one file OUT.

    IN is the first shard, an index, a directory, or all the shards. All shards are located and checked before anything
    is written; shards are never modified.
    """
    from ..write import shard
    from ..write.plan import plan_graph

    graph = shard.merge(inputs, lambda path: option_values.open_input(path, values, dequantized=False))
    options = dataclasses.replace(option_values.convert_options(values), to=values["to"] or graph.format)
    made = plan_graph(graph, Path(output), options, list(inputs))
    shard.refuse_inputs(made)
    run_plan(made, values)

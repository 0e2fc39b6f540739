"""``merge``: several shards in one file."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import click

from .. import arguments, destination
from .convert import carry_out

EPILOG = """\b
Examples
  candle-convert merge parts/model-00001-of-00003.gguf model.gguf
  candle-convert merge model.safetensors.index.json model.safetensors
  candle-convert merge model-dir/ model.safetensors --no-tokenizer --dry-run
"""


@click.command("merge", cls=destination.Writing, epilog=EPILOG)
@click.argument("inputs", metavar="IN...", nargs=-1, required=True, type=arguments.PATH)
@destination.output
@arguments.options(arguments.OUTPUT, arguments.CARRYING, arguments.PLACING, arguments.READING)
def COMMAND(inputs: tuple[str, ...], output: str, **values: Any) -> None:  # noqa: N802 (the name that the registry looks for)
    """Join shards IN into one file OUT.

    IN is the first shard, an index, a directory, or all the shards. The whole set is found and checked before anything is written,
    and no shard is ever written to.
    """
    from .. import sharding
    from ..plan import plan_graph

    graph = sharding.merge(inputs, lambda path: arguments.open_input(path, values, dequantized=False))
    options = dataclasses.replace(arguments.convert_options(values), to=values["to"] or graph.format)
    made = plan_graph(graph, Path(output), options, list(inputs))
    sharding.refuse_inputs(made)
    carry_out(made, values)

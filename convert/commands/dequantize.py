"""``dequantize``: the weights of a quantized model become plain numbers again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from .. import arguments, destination
from .convert import carry_out

EPILOG = """\b
Examples
  candle-convert dequantize q4.gguf model.safetensors
  candle-convert dequantize q4.gguf model.gguf --dtype bf16
  candle-convert dequantize q4.gguf model.gguf --dtype f16 --dry-run
"""


@click.command("dequantize", cls=destination.Writing, epilog=EPILOG)
@click.argument("source", metavar="IN", type=arguments.PATH)
@destination.output
@click.option("--dtype", "--outtype", default="f32", metavar="DTYPE", type=arguments.DTYPE, help="f32 (exact, the default), f16, bf16 ...")
@click.option("--nan", default="error", type=click.Choice(["error", "warn", "keep"]), help="What a NaN in a weight does.")
@arguments.ALLOW_OVERFLOW
@arguments.WEIGHTS_ONLY
@arguments.options(arguments.OUTPUT, arguments.CHOOSING, arguments.SHARDING, arguments.CARRYING, arguments.PLACING, arguments.READING)
def COMMAND(source: str, output: str, **values: Any) -> None:  # noqa: N802 (the name that the registry looks for)
    """Turn quantized weights into plain numbers.

    Those of IN are GGUF blocks, or a directory in GPTQ, AWQ, bitsandbytes and the like. Other weights stay as they are. What quantizing lost does
    not come back.
    """
    from ..plan import plan_graph
    from ..prequantized import unpack
    from ..quantizing.dequantizing import dequantize
    from ..sharding import refuse_inputs

    graph = arguments.open_input(source, values, dequantized=False)
    elsewhere = unpack(graph)
    options = arguments.convert_options({**values, "dtype": None})
    audits = dequantize(graph, values["dtype"], values["nan"], elsewhere)
    made = plan_graph(graph, Path(output), options, [source])
    made.casts.audits += audits
    refuse_inputs(made)
    carry_out(made, values)

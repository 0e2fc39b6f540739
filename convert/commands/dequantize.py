"""``dequantize``: converts quantized weights to floats."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..cli import option_values, output_path, shared_options
from .convert import run_plan

GROUP = "Convert"
EPILOG = """\b
Examples
  candle-convert dequantize q4.gguf model.safetensors
  candle-convert dequantize q4.gguf model.gguf --dtype bf16
  candle-convert dequantize q4.gguf model.gguf --dtype f16 --dry-run
"""


@click.command("dequantize", cls=output_path.Writing, epilog=EPILOG)
@click.argument("source", metavar="IN", type=shared_options.PATH)
@output_path.output
@click.option(
    "--dtype",
    "--outtype",
    default="f32",
    metavar="DTYPE",
    type=shared_options.DTYPE,
    help="f32 (exact, the default), f16, bf16 ...",
)
@click.option(
    "--nan", default="error", type=click.Choice(["error", "warn", "keep"]), help="How to treat NaN in a weight."
)
@shared_options.ALLOW_OVERFLOW
@shared_options.WEIGHTS_ONLY
@shared_options.options(
    shared_options.OUTPUT,
    shared_options.CHOOSING,
    shared_options.SHARDING,
    shared_options.CARRYING,
    shared_options.PLACING,
    shared_options.READING,
)
def COMMAND(source: str, output: str, **values: Any) -> None:  # noqa: N802
    """Convert quantized weights to floats.

    IN has GGUF block types, or is a directory in GPTQ, AWQ, bitsandbytes or a similar format. Other weights are copied.
    Precision lost by quantization is not restored.
    """
    from ..open.prequantized import unpack
    from ..quantize.dequantize import dequantize
    from ..write.plan import plan_graph
    from ..write.shard import refuse_inputs

    graph = option_values.open_input(source, values, dequantized=False)
    elsewhere = unpack(graph)
    options = option_values.convert_options({**values, "dtype": None})
    audits = dequantize(graph, values["dtype"], values["nan"], elsewhere)
    made = plan_graph(graph, Path(output), options, [source])
    made.casts.audits += audits
    refuse_inputs(made)
    run_plan(made, values)

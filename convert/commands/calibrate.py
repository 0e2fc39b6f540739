"""``calibrate``: the ranges that a network's values take on data, for quantizing them."""

from __future__ import annotations

from typing import Any

import click

from ...runtime.errors import UsageError
from ...runtime.units import counted
from .. import arguments
from ..output import current

EPILOG = """\b
Examples
  candle-convert calibrate model.onnx -d inputs.npz -o ranges.json
  candle-convert calibrate model.onnx -d folder/ -o ranges.json --device cuda
  candle-convert quantize model.onnx small.onnx int8 --calib ranges.json
"""


@click.command("calibrate", epilog=EPILOG)
@click.argument("model", metavar="MODEL", type=arguments.PATH)
@click.option("-d", "--data", required=True, metavar="DATA", type=arguments.PATH, help="npz, a folder of npz, or a folder of npy for each input.")
@click.option("-o", "--output", "--outfile", required=True, metavar="FILE.json", type=arguments.TEXT_OUT, help="Where the ranges go.")
@click.option("--resume", is_flag=True, help="Add to what the output already holds.")
@click.option("-f", "--force", is_flag=True, help="Replace an existing output.")
@arguments.options(arguments.DEVICE, arguments.READING)
def COMMAND(model: str, data: str, output: str, *, resume: bool, force: bool, **values: Any) -> None:  # noqa: N802
    """Run MODEL on data and save the ranges of its values.

    Each value keeps a histogram of constant size, however much data there is. quantize --calib makes ranges of them by any --method.
    """
    from ..quantizing import calibrating, network
    from ..replacing import refuse_existing, replacing

    refuse_existing(output, force=force or resume)
    placed = arguments.device(values)
    graph = arguments.open_input(model, values)
    if not graph.nodes:
        raise UsageError("E-RUN-NODES", model, "holds weights only, without a graph", hint="Use an .onnx file")
    network.simplified(graph)
    before = calibrating.read(output) if resume else None
    found = calibrating.calibrate(graph, calibrating.samples(data, graph), before, placed=placed)
    with replacing(output, force=force or resume) as file:
        file.write(calibrating.dump(found))
    odd = {name: one.odd for name, one in found.seen.items() if one.odd}
    current().say(f" seen     {counted(len(found.seen), 'value')} in {counted(found.samples, 'sample')}")
    for name, count in list(odd.items())[:5]:
        current().say(f" warning  {name}: {count:,} values are NaN or infinite and were left out")
    ranges = {name: {"low": one.low, "high": one.high, "odd": one.odd} for name, one in found.seen.items()}
    current().say(f"✓ {output}")
    current().emit({"outputs": [{"path": output}], "samples": found.samples, "values": ranges})

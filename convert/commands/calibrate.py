"""``calibrate``: activation ranges of a network on data, for quantization."""

from __future__ import annotations

import os
from typing import Any

import click

from ...runtime.base.errors import UsageError, printable
from ...runtime.base.units import counted
from ..cli import option_values, shared_options
from ..cluster import cluster_option
from ..console.output import current
from ..quantize.calibration import image_options

GROUP = "Convert"
EPILOG = """\b
Examples
  candle-convert calibrate model.onnx -d inputs.npz -o ranges.json
  candle-convert calibrate model.onnx -d folder/ -o ranges.json --device cuda
  candle-convert quantize model.onnx small.onnx int8 --calib ranges.json
"""


@click.command("calibrate", epilog=EPILOG)
@click.argument("model", metavar="MODEL", type=shared_options.PATH)
@click.option(
    "-d",
    "--data",
    required=True,
    metavar="DATA",
    type=shared_options.PATH,
    help="npz, folder of npz, of npy for each input, or of images.",
)
@click.option(
    "-o",
    "--output",
    "--outfile",
    required=True,
    metavar="FILE.json",
    type=shared_options.TEXT_OUT,
    help="Output file of the ranges.",
)
@click.option("--resume", is_flag=True, help="Add to the histograms that the output already holds.")
@shared_options.FORCE
@shared_options.options(
    image_options.IMAGES, shared_options.PROGRESS, shared_options.DEVICE, cluster_option.RUNS, shared_options.READING
)
@cluster_option.connected
def COMMAND(model: str, data: str, output: str, *, resume: bool, force: bool, **values: Any) -> None:  # noqa: N802
    """Run MODEL on data and save the ranges of its activations.

    Images are read from the folder and from its folders, such as one per class, and prepared as `eval` does.

    Each value has a histogram of constant size, whatever the amount of data. quantize --calib computes ranges from the
    histograms by any --method.
    """
    from ..console.atomic_replace import refuse_existing, replacing
    from ..quantize.calibration import calibrate
    from ..quantize.network import quantize_network

    refuse_existing(output, force=force or resume)
    placed = option_values.device(values)
    graph = option_values.open_input(model, values)
    if not graph.nodes:
        raise UsageError("E-RUN-NODES", model, "holds weights only, without a graph", hint="Use an .onnx file")
    quantize_network.simplified(graph)
    before = calibrate.read(output) if resume else None
    kept = None if before is None else before.samples
    look = image_options.look(values)
    progress = option_values.progress(values)
    progress.phase("calibrating")
    progress.start(sum(1 for _ in calibrate.sample_readers(data, graph, look)), unit="samples")
    seen = kept or 0

    def told(count: int) -> None:
        nonlocal seen
        progress.advance(count - seen)
        seen = count

    try:
        if values["cluster"] is None:
            found = calibrate.calibrate(graph, calibrate.samples(data, graph, look), before, told, placed=placed)
        else:
            from ..cluster.network_runs import Ranges, calibrated_on

            cluster_option.check(values["cluster"], [model, data])
            work = Ranges(cluster_option.opening(model, values), os.path.abspath(data), look, placed)
            found = calibrated_on(values["cluster"], work, graph, before, told)
    finally:
        progress.finish()
    with replacing(output, force=force or resume) as file:
        file.write(calibrate.dump(found))
    odd = {name: one.odd for name, one in found.seen.items() if one.odd}
    current().say(f" seen     {counted(len(found.seen), 'value')} in {counted(found.samples, 'sample')}")
    for name, count in list(odd.items())[:5]:
        current().say(f" warning  {name}: {counted(count, 'value')} left out: NaN or infinite")
    ranges = {name: {"low": one.low, "high": one.high, "odd": one.odd} for name, one in found.seen.items()}
    if kept is not None:
        current().say(f" resumed  kept {counted(kept, 'sample')} of {printable(output)}")
    current().say(f"✓ {output}")
    stem = os.path.splitext(os.path.basename(model))[0]
    current().next_step("quantize", model, f"{stem}-int8.onnx", "int8", "--calib", output)
    current().emit({"outputs": [{"path": output}], "samples": found.samples, "values": ranges})

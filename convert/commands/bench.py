"""``bench``: how long a model takes and how much memory, next to a peer in the same run."""

from __future__ import annotations

from typing import Any

import click

from ...runtime.errors import UsageError, printable
from .. import arguments
from ..output import current, human_size

EPILOG = """\b
Examples
  candle-convert bench model.onnx
  candle-convert bench model.onnx --input x=1x3x224x224 --runs 50 --json
  candle-convert bench model.onnx --device cuda --against onnxruntime
"""
PEERS = ("onnxruntime",)


@click.command("bench", epilog=EPILOG)
@click.argument("model", metavar="MODEL", type=arguments.PATH)
@click.option("--input", "inputs", multiple=True, metavar="NAME=VALUE", help="FILE.npy, 1x3x224x224, random, zeros or ones; or FILE.npz for all.")
@click.option("--dim", "dims", multiple=True, metavar="NAME=N", help="Length of a symbolic dimension of made-up inputs (default: one that fits).")
@click.option("--runs", type=click.IntRange(1), default=20, metavar="N", help="Timed runs of each (default 20).")
@click.option("--warmup", type=click.IntRange(0), default=3, metavar="N", help="Runs before that (default 3).")
@click.option("--threads", type=click.IntRange(1), metavar="N", help="Threads of both (default: the cores).")
@click.option("--against", type=click.Choice(PEERS), help="Another engine to run alternately with ours.")
@arguments.options(arguments.DEVICE, arguments.READING)
def COMMAND(model: str, **values: Any) -> None:  # noqa: N802 (the name that the registry looks for)
    """Measure how long MODEL takes, and how much memory.

    Each engine runs in a process of its own, the runs of both in turn; medians are shown.
    """
    from ..running.benching import measure
    from ..running.feeds import dims, feeds, hinting

    placed = arguments.device(values)
    graph = arguments.open_input(model, values)
    if not graph.nodes:
        raise UsageError("E-RUN-NODES", model, "holds weights only, there is nothing to run", hint="Run an .onnx file")
    fed, told = feeds(graph, values["inputs"], 0, dims(values["dims"]))
    engines = ["candle-convert", *([values["against"]] if values["against"] else [])]
    with hinting(graph, told):
        found = measure(engines, graph.files[0], fed, runs=values["runs"], warmup=values["warmup"], threads=values["threads"], placed=placed)
    out = current()
    for line in told:
        out.say(f"input {printable(line)}")
    rows = [
        (row.engine, *(f"{part * 1e3:.3f}" for part in (row.load, row.first, row.median, row.p90)), f"{1 / row.median:.1f}", human_size(row.peak))
        for row in found
    ]
    out.table(("engine", "load ms", "first ms", "median ms", "p90 ms", "runs/s", "peak"), rows, right=(1, 2, 3, 4, 5, 6))
    if len(found) > 1:
        out.say(f"ratio {found[0].median / found[1].median:.2f} (our time over {found[1].engine}'s)")
    out.emit({"inputs": [model], "engines": [row.to_json() for row in found]})

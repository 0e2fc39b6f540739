"""``bench``: time and memory of a model, compared with another engine."""

from __future__ import annotations

from typing import Any

import click

from ...runtime.base.errors import printable
from ..benchmark.engines import OURS, PEERS
from ..cli import option_values, shared_options
from ..console.output import current, human_size

GROUP = "Run"
EPILOG = """\b
Examples
  candle-convert bench model.onnx
  candle-convert bench model.onnx --input x=1x3x224x224 --runs 50 --json
  candle-convert bench model.onnx --against onnxruntime --against openvino
"""


@click.command("bench", epilog=EPILOG)
@click.argument("model", metavar="MODEL", type=shared_options.PATH)
@shared_options.INPUT
@shared_options.DIM
@click.option("--runs", type=click.IntRange(1), default=20, metavar="N", help="Timed runs of each engine (default 20).")
@click.option(
    "--warmup", type=click.IntRange(0), default=3, metavar="N", help="Untimed runs before the timed ones (default 3)."
)
@click.option(
    "--threads", type=click.IntRange(1), metavar="N", help="Threads of each engine (default: the number of cores)."
)
@click.option(
    "--against", type=click.Choice(PEERS), multiple=True, help="Another engine to compare with; may be repeated."
)
@shared_options.options(shared_options.DEVICE, shared_options.READING)
def COMMAND(model: str, **values: Any) -> None:  # noqa: N802
    """Measure time and memory of MODEL.

    Each engine runs in its own process, in turns, and is stopped while others run, so that its threads do not spin on
    their cores. Medians are shown.
    """
    from ..benchmark.measure import measure
    from ..run.feeds import dims, feeds, hint_at_shapes

    placed = option_values.device(values)
    graph = option_values.open_network(model, values)
    fed, generated = feeds(graph, values["inputs"], 0, dims(values["dims"]))
    engines = [OURS, *dict.fromkeys(values["against"])]
    with hint_at_shapes(graph, generated):
        found = measure(
            engines,
            graph.files[0],
            fed,
            runs=values["runs"],
            warmup=values["warmup"],
            threads=values["threads"],
            placed=placed,
        )
    out = current()
    for line in generated:
        out.say(f"input {printable(line)}")
    rows = [
        (
            row.engine,
            *(f"{part * 1e3:.3f}" for part in (row.load, row.first, row.median, row.p90)),
            f"{1 / row.median:.1f}",
            human_size(row.peak),
        )
        for row in found
    ]
    out.table(
        ("engine", "load ms", "first ms", "median ms", "p90 ms", "runs/s", "peak"), rows, right=(1, 2, 3, 4, 5, 6)
    )
    for peer in found[1:]:
        out.say(f"ratio {found[0].median / peer.median:.2f} (our time over {peer.engine}'s)")
    out.emit({"inputs": [model], "engines": [row.to_json() for row in found]})

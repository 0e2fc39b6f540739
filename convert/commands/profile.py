"""``profile``: time of a model by node and by operator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ...runtime.base.errors import printable
from ..cli import option_values, shared_options
from ..console.output import current

if TYPE_CHECKING:
    from ..run.profile import Row

GROUP = "Run"
EPILOG = """\b
Examples
  candle-convert profile model.onnx
  candle-convert profile model.onnx -o trace.json --runs 5 --threads 1
  candle-convert profile model.onnx --input x=1x3x224x224 --device cuda --json
"""
WIDEST = 60
"""Characters of a name or of types that a table shows."""


@click.command("profile", epilog=EPILOG)
@click.argument("model", metavar="MODEL", type=shared_options.PATH)
@shared_options.INPUT
@shared_options.DIM
@click.option(
    "--runs", type=click.IntRange(1), default=10, metavar="N", help="Timed runs (default 10); medians are shown."
)
@click.option(
    "--warmup", type=click.IntRange(0), default=3, metavar="N", help="Untimed runs before the timed ones (default 3)."
)
@shared_options.THREADS
@click.option(
    "--top",
    type=click.IntRange(1),
    default=20,
    metavar="N",
    help="Number of nodes in the table (default 20); --json has all.",
)
@click.option(
    "-o",
    "--output",
    "--outfile",
    metavar="TRACE.json",
    type=shared_options.TEXT_OUT,
    help="Write a trace for chrome://tracing or ui.perfetto.dev.",
)
@click.option("-f", "--force", is_flag=True, help="Replace an existing trace.")
@shared_options.options(shared_options.DEVICE, shared_options.READING)
def COMMAND(model: str, **values: Any) -> None:  # noqa: N802
    """Show the time MODEL spends by operator and by node.

    Nodes are those of the simplified graph. Times are wall-clock times per step, with all threads; GFLOP/s counts a
    multiply-add as two operations. On a GPU every launch and copy is synchronized, so a profiled run is slower.
    """
    from ...runtime.session import Session
    from ..run.feeds import dims, feeds, hint_at_shapes
    from ..run.profile import profile

    placed = option_values.device(values)
    graph = option_values.open_network(model, values)
    session = Session(graph, threads=values["threads"], **placed)
    fed, generated = feeds(graph, values["inputs"], 0, dims(values["dims"]))
    with hint_at_shapes(graph, generated):
        made = profile(session, fed, runs=values["runs"], warmup=values["warmup"])
    out = current()
    for line in generated:
        out.say(f"input {printable(line)}")
    columns = ("ms", "share", "GFLOP/s", "GB/s", "how")
    rows = [(*_figures(row), row.nodes, row.operator) for row in made.operators]
    out.table((*columns, "nodes", "operator"), rows, right=(0, 1, 2, 3, 5))
    out.say()
    shown = made.nodes[: values["top"]]
    cells = [(*_figures(row), row.operator, _short(row.types), _short(row.name)) for row in shown]
    out.table((*columns, "operator", "types", "node"), cells, right=(0, 1, 2, 3))
    left = f", {len(made.nodes) - len(shown)} more nodes with --top" if len(shown) < len(made.nodes) else ""
    out.say(
        f"{made.seconds * 1e3:.3f} ms per run, {made.outside * 1e3:.3f} ms of it outside nodes, {session.threads} "
        f"threads{left}"
    )
    if values["output"] is not None:
        _write(made, model, values["output"], values["force"])
    out.emit(
        {
            "inputs": [model],
            "outputs": [values["output"]] if values["output"] else [],
            "threads": session.threads,
            "runs": values["runs"],
            "device": session.device,
            "seconds": made.seconds,
            "outside": made.outside,
            "lost": made.lost,
            "operators": [row.to_json() for row in made.operators],
            "nodes": [row.to_json() for row in made.nodes],
        }
    )


def _figures(row: Row) -> tuple[str, ...]:
    rates = ("" if rate is None else f"{rate:.1f}" for rate in (row.gflops, row.gbytes))
    return (f"{row.seconds * 1e3:.3f}", f"{row.share:.1%}", *rates, _short(row.how))


def _short(text: str) -> str:
    return text if len(text) <= WIDEST else f"{text[: WIDEST - 1]}…"


def _write(made: Any, model: str, path: str, force: bool) -> None:
    import json

    from ..console.atomic_replace import replacing
    from ..run.profile import trace

    with replacing(path, force=force) as file:
        file.write(json.dumps(trace(made, model)).encode())
    current().say(f"trace in {printable(path)}")

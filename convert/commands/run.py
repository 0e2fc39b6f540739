"""``run``: computes the outputs of a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ...runtime.base.compile_progress import Stopwatch
from ...runtime.base.errors import printable
from ..cli import option_values, shared_options
from ..console.output import current

if TYPE_CHECKING:
    import numpy as np

GROUP = "Run"
EPILOG = """\b
Examples
  candle-convert run model.onnx --input x=image.npy --output y.npz
  candle-convert run untrusted.onnx --max-memory 2GiB --limit time=60
  candle-convert run model.onnx --input x=1x3x48x320 --dim n=2
"""


@click.command("run", epilog=EPILOG)
@click.argument("model", metavar="MODEL", type=shared_options.PATH)
@shared_options.INPUT
@shared_options.DIM
@click.option("--seed", type=int, default=0, metavar="N", help="Seed of random inputs (default 0).")
@click.option(
    "-o",
    "--output",
    "--outfile",
    metavar="OUT.npz",
    type=shared_options.PATH,
    help="Write the outputs to a file, in any format for weights.",
)
@click.option("--taps", metavar="RE", help="Show the intermediate values whose name matches.")
@shared_options.THREADS
@shared_options.MAX_MEMORY
@shared_options.FORCE
@shared_options.options(shared_options.DEVICE, shared_options.READING)
def COMMAND(model: str, **values: Any) -> None:  # noqa: N802
    """Compute the outputs of MODEL.

    Inputs that are not given are random. Shows dtype, shape and statistics of every output.
    """
    from ...runtime.session import Session
    from ..console.atomic_replace import refuse_existing
    from ..console.stdio import refuse_stream
    from ..run.feeds import dims, feeds, hint_at_shapes

    if values["output"] is not None:
        refuse_stream(values["output"], "outputs")
        refuse_existing(values["output"], force=values["force"])
    placed = option_values.device(values)
    graph = option_values.open_network(model, values)
    session = Session(graph, threads=values["threads"], **placed)
    fed, generated = feeds(graph, values["inputs"], values["seed"], dims(values["dims"]))
    out = current()
    for line in generated:
        out.say(f"input {printable(line)}")
    rows: list[dict[str, Any]] = []
    watch = Stopwatch()
    with hint_at_shapes(graph, generated):
        if values["taps"] is None:
            results = session.run(None, fed)
        else:
            results = session.run_with_taps(
                fed, taps=values["taps"], on_tap=lambda name, array: rows.append(_row(name, array))
            )
    seconds = watch.seconds
    named = dict(zip((value.name for value in graph.outputs), results, strict=True))
    rows += [_row(name, result) for name, result in named.items()]
    out.table(
        ("min", "max", "mean", "NaN", "dtype", "shape", "value"), [_cells(row) for row in rows], right=(0, 1, 2, 3)
    )
    out.say(f"{seconds:.3f} s")
    placement = None
    if session.on_device:
        from ...runtime.cuda.execute.placement_report import placement_of

        placement = placement_of(session.program)
        for line in placement.lines():
            out.say(line)
    if values["output"] is not None:
        _save(named, values["output"])
    out.emit(
        {
            "inputs": [model],
            "values": rows,
            "outputs": [values["output"]] if values["output"] else [],
            "timings": {"run": seconds, "compile": watch.compile_seconds},
            **({} if placement is None else {"placement": placement.to_json()}),
        }
    )


def _row(name: str, value: Any) -> dict[str, Any]:
    import numpy

    if not isinstance(value, numpy.ndarray):
        length = len(value) if isinstance(value, list | dict) else None
        return {"name": name, "dtype": type(value).__name__, "shape": None if length is None else [length]}
    row: dict[str, Any] = {"name": name, "dtype": str(value.dtype), "shape": list(value.shape)}
    if value.size and value.dtype.kind != "O":
        numbers = value.astype(numpy.float64)
        finite = numbers[numpy.isfinite(numbers)]
        row["nan"] = int(numpy.isnan(numbers).sum())
        if finite.size:
            row |= {"min": float(finite.min()), "max": float(finite.max()), "mean": float(finite.mean())}
    return row


def _cells(row: dict[str, Any]) -> list[str]:
    numbers = [f"{row[key]:.6g}" if key in row else "" for key in ("min", "max", "mean")]
    return [
        *numbers,
        str(row.get("nan", "")),
        row["dtype"],
        "x".join(map(str, row["shape"] or [])) or "scalar",
        row["name"],
    ]


def _save(named: dict[str, Any], path: str) -> None:
    from ..api import convert

    arrays: dict[str, np.ndarray] = {}
    for name, value in named.items():
        items = (
            {f"{name}[{index}]": item for index, item in enumerate(value)} if isinstance(value, list) else {name: value}
        )
        arrays.update(
            {
                key: item
                for key, item in items.items()
                if getattr(item, "dtype", None) is not None and item.dtype.kind != "O"
            }
        )
    convert.save_file(arrays, path)
    left = len(named) - len(arrays)
    current().say(f"saved to {printable(path)}" + (f", except {left} non-numeric outputs" if left > 0 else ""))

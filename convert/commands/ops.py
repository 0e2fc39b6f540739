"""``ops``: supported operators, and those of a model that are missing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ...runtime.base.errors import UnsupportedError, UsageError, printable
from ...runtime.base.units import counted
from ..cli import option_values, shared_options
from ..console.output import current

if TYPE_CHECKING:
    from ...runtime.ir.graph import Graph

GROUP = "Inspect and check"
EPILOG = """\b
Examples
  candle-convert ops --domain com.microsoft --json
  candle-convert ops model.onnx
  candle-convert ops model.onnx --device cuda --dim batch=4
"""


@click.command("ops", epilog=EPILOG)
@click.argument("model", metavar="[MODEL]", required=False, type=shared_options.PATH)
@click.option(
    "--domain", metavar="DOMAIN", help="Only operators of this domain: ai.onnx, ai.onnx.ml, com.microsoft ..."
)
@click.option(
    "--device",
    metavar="DEVICE",
    default="cpu",
    help="cuda: which operators run there, why others do not, and the copies needed.",
)
@click.option(
    "--dim",
    "dims",
    multiple=True,
    metavar="NAME=N",
    help="Length of a symbolic dimension of MODEL's inputs (default 1).",
)
@shared_options.options(shared_options.READING)
@click.pass_context
def COMMAND(  # noqa: N802 (the registry's name)
    context: click.Context, /, model: str | None, domain: str | None, device: str, dims: tuple[str, ...], **values: Any
) -> None:
    """List operators, or those that MODEL uses.

    With MODEL, also lists missing operators; exits with 1 if there are any.
    """
    if device not in ("cpu", "cuda"):
        raise UsageError("E-DEVICE-NAME", None, f"unknown device {device!r}", expected="cpu or cuda")
    if model is None:
        _list(domain, device)
        return
    from ..run import operator_coverage

    graph = option_values.open_input(model, values)
    if device == "cuda":
        _place(graph, model, dims)
        return
    missing = operator_coverage.missing(graph)
    counts = operator_coverage.used(graph)
    rows = [
        {"op": op.name, "domain": op.domain or "ai.onnx", "nodes": count}
        for op, count in sorted(counts.items(), key=lambda item: (item[0].domain, item[0].name))
        if domain in (None, op.domain or "ai.onnx")
    ]
    out = current()
    out.table(("operator", "domain", "nodes"), [list(row.values()) for row in rows], right=(2,))
    opsets = ", ".join(f"{name or 'ai.onnx'} {opset}" for name, opset in sorted(graph.opsets.items()))
    lost = sum(item.nodes for item in missing)
    out.say(
        f"nodes {sum(counts.values()) + lost} · opset {opsets} · operators {len(counts) + len(missing)} · missing "
        f"{len(missing)}"
    )
    for item in missing:
        out.say(f"✗ {item.domain}.{item.op} x{item.nodes}: {item.why}")
    out.emit(
        {"inputs": [model], "opsets": graph.opsets, "ops": rows, "missing": [item._asdict() for item in missing]},
        ok=not missing,
    )
    if missing:
        context.exit(1)


def _place(graph: Graph, model: str, dims: tuple[str, ...]) -> None:
    from ..run.feeds import check_dims
    from ..run.feeds import dims as parsed

    lengths = parsed(dims)
    check_dims(graph, lengths)
    _needs_package()
    from ...runtime.cuda.execute.placement_report import predict_placement

    placement = predict_placement(graph, lengths)
    out = current()
    out.table(
        ("operator", "nodes"),
        [[printable(name), count] for name, count in sorted(placement.device.items())],
        right=(1,),
    )
    for line in placement.lines():
        out.say(line)
    out.emit({"inputs": [model], "opsets": graph.opsets, "placement": placement.to_json()})


def _needs_package() -> None:
    from ...runtime.cuda.device.device import cuda_support

    found = cuda_support()
    if found.package is None:
        raise UnsupportedError(
            found.code or "E-DEVICE-PACKAGE", None, found.why or "numba-cuda is not installed", hint=found.hint
        )


def _list(domain: str | None, device: str) -> None:
    from ...runtime.ir import registry

    if device == "cuda":
        _needs_package()
        from ...runtime.cuda.plan.kernel_api import cpu_reason

        places = [
            {
                "op": op.name,
                "domain": op.domain or "ai.onnx",
                "device": "cuda" if cpu_reason(op) is None else "cpu",
                "why": cpu_reason(op),
            }
            for _, op in sorted(registry.operators().items())
            if domain in (None, op.domain or "ai.onnx")
        ]
        out = current()
        cells = [[row["op"], row["domain"], row["device"], row["why"] or ""] for row in places]
        out.table(("operator", "domain", "runs on", "because"), cells, prose=(3,))
        out.say(
            f"{sum(row['device'] == 'cuda' for row in places)} of {counted(len(places), 'operator')} on the GPU; "
            "values are copied for the others"
        )
        out.emit({"ops": places})
        return
    rows: list[dict[str, Any]] = [
        {
            "op": op.name,
            "domain": op.domain or "ai.onnx",
            "opset": op.since,
            "upgrades": sorted(rule.below for rule in op.upgrades),
        }
        for _, op in sorted(registry.operators().items())
        if domain in (None, op.domain or "ai.onnx")
    ]
    out = current()
    cells = [
        [row["op"], row["domain"], row["opset"], " ".join(f"<{below}" for below in row["upgrades"])] for row in rows
    ]
    out.table(("operator", "domain", "opset", "upgraded from"), cells, right=(2,))
    out.emit({"ops": rows})

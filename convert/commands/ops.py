"""``ops``: the operators that exist, and those of a model that are missing."""

from __future__ import annotations

import dataclasses
from typing import Any

import click

from .. import arguments
from ..output import current

EPILOG = """\b
Examples
  candle-convert ops
  candle-convert ops model.onnx
  candle-convert ops --domain com.microsoft --json
"""


@click.command("ops", epilog=EPILOG)
@click.argument("model", metavar="[MODEL]", required=False, type=arguments.PATH)
@click.option("--domain", metavar="DOMAIN", help="Only operators of this domain: ai.onnx, ai.onnx.ml, com.microsoft ...")
@arguments.options(arguments.READING)
@click.pass_context
def COMMAND(context: click.Context, /, model: str | None, domain: str | None, **values: Any) -> None:  # noqa: N802 (the registry's name)
    """List operators, or those that MODEL uses.

    With MODEL every operator that is missing is listed too. Exits with 1 when the model needs an operator that does not exist here.
    """
    if model is None:
        _list(domain)
        return
    from ..running import coverage

    graph = arguments.open_input(model, values)
    missing = coverage.missing(graph)
    counts = coverage.used(graph)
    rows = [
        {"op": op.name, "domain": op.domain or "ai.onnx", "nodes": count}
        for op, count in sorted(counts.items(), key=lambda item: (item[0].domain, item[0].name))
        if domain in (None, op.domain or "ai.onnx")
    ]
    out = current()
    out.table(("operator", "domain", "nodes"), [list(row.values()) for row in rows], right=(2,))
    opsets = ", ".join(f"{name or 'ai.onnx'} {opset}" for name, opset in sorted(graph.opsets.items()))
    lost = sum(item.nodes for item in missing)
    out.say(f"nodes {sum(counts.values()) + lost} · opset {opsets} · operators {len(counts) + len(missing)} · missing {len(missing)}")
    for item in missing:
        out.say(f"✗ {item.domain}.{item.op} ×{item.nodes}: {item.why}")
    out.emit({"inputs": [model], "opsets": graph.opsets, "ops": rows, "missing": [dataclasses.asdict(item) for item in missing]}, ok=not missing)
    if missing:
        context.exit(1)


def _list(domain: str | None) -> None:
    from ...runtime import registry

    rows: list[dict[str, Any]] = [
        {"op": op.name, "domain": op.domain or "ai.onnx", "opset": op.since, "upgrades": sorted(rule.below for rule in op.upgrades)}
        for _, op in sorted(registry.operators().items())
        if domain in (None, op.domain or "ai.onnx")
    ]
    out = current()
    cells = [[row["op"], row["domain"], row["opset"], " ".join(f"<{below}" for below in row["upgrades"])] for row in rows]
    out.table(("operator", "domain", "opset", "upgraded from"), cells, right=(2,))
    out.emit({"ops": rows})

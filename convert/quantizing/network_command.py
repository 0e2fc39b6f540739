"""What ``quantize`` does with a network: data, passes, loss, and the file."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import math
import shlex
import sys
from pathlib import Path
from typing import Any

from ...runtime.errors import Error, UsageError, printable
from ...runtime.graph import Graph
from ...runtime.limits import size
from ...runtime.passes.half import F16_MOST
from ...runtime.passes.rewrite import graphs
from ...runtime.units import counted
from .. import arguments
from ..output import current, human_size, notes_json
from . import calibrating, network, network_options
from .loss import Loss, losses, made_up

MEASURED = 16
"""Samples that the loss is measured on at most."""
POOR = 10.0
"""Decibels below which outputs are hardly the original's."""
SHOWN = 10
"""Lines of a list on the screen."""


def quantize(graph: Graph, source: str, output: str, type_name: str | None, values: dict[str, Any]) -> None:
    """Quantize the network `graph`, opened from `source`, and write it."""
    from ..opening import open_model
    from ..plan import plan_graph
    from ..sharding import refuse_inputs

    request = network_options.request(type_name, values)
    options = arguments.read_options(values)
    before = network.simplified(
        open_model(source, options, format=values["source_format"], revision=values["revision"], offline=values["offline"])
    )
    network.simplified(graph)
    data, ranges = _calibrated(graph, values)
    allowed = size(values["max_memory"])
    if request.type == "f16":
        request = dataclasses.replace(request, wide=_too_wide(before, allowed))
    outcome = network.quantize(graph, request, ranges)
    found, why = _measured(before, graph, data, allowed)
    payload = {"type": request.type, "kind": request.kind, **outcome.to_json(), "loss": [loss.to_json() for loss in found], "not_measured": why}
    _show(outcome, found, why)
    made = plan_graph(graph, Path(output), arguments.convert_options({**values, "tensor_type": ()}), [source])
    made.fingerprint = hashlib.sha256(f"{made.fingerprint} {request!r} {sorted(ranges.items())!r}".encode()).hexdigest()
    refuse_inputs(made)
    _carry_out(made, payload, values)


def _calibrated(graph: Graph, values: dict[str, Any]) -> tuple[str | None, network.Ranges]:
    """Where samples are, None where there are none, and the ranges of activations."""
    calib = values["calib"]
    if calib is None:
        return None, {}
    saved = str(calib).lower().endswith(".json")
    seen = calibrating.read(calib) if saved else calibrating.calibrate(graph, calibrating.samples(calib, graph), told=_told)
    made = {value.name for inner in graphs(graph) for node in inner.nodes for value in node.outputs} | {value.name for value in graph.inputs}
    ranges = {name: span for name, span in seen.ranges(values["method"]).items() if name in made}
    if not ranges:
        raise UsageError("E-CALIB-DATA", calib, "has no range of any value of this network", hint="Calibrate the model that is quantized")
    return None if saved else calib, ranges


def _too_wide(graph: Graph, allowed: int) -> frozenset[str]:
    """Values that f16 cannot hold on made-up inputs; none where there are no such inputs or it does not fit, which the loss says."""
    if sum(inner.nbytes for inner in graphs(graph)) > allowed:
        return frozenset()
    try:
        seen = calibrating.calibrate(graph, made_up(graph)).seen
    except Error:
        return frozenset()
    return frozenset(name for name, one in seen.items() if max(-one.low, one.high) > F16_MOST)


def _told(count: int) -> None:
    if count & (count - 1) == 0:
        current().say(f" calibrate {counted(count, 'sample')}")


def _measured(before: Graph, after: Graph, data: str | None, allowed: int) -> tuple[list[Loss], str | None]:
    """The loss on data, else on made-up inputs; without one, why."""
    need = sum(inner.nbytes for graph in (before, after) for inner in graphs(graph))
    if need > allowed:
        return [], f"the weights of both networks are {need:,} bytes, --max-memory allows {allowed:,}"
    try:
        inputs = made_up(before) if data is None else itertools.islice(calibrating.samples(data, before), MEASURED)
        return losses(before, after, inputs), None
    except Error as error:
        return [], f"{error.why}"


def _show(outcome: network.Outcome, found: list[Loss], why: str | None) -> None:
    say = current().say
    ratio = outcome.before / max(outcome.after, 1)
    say(f" quantize {counted(len(outcome.weights), 'weight')} · {human_size(outcome.before)} to {human_size(outcome.after)} ({ratio:.1f}x smaller)")
    for item in outcome.kept[:SHOWN]:
        say(f" kept     {item.operator} {printable(item.node)}: {item.why}")
    if len(outcome.kept) > SHOWN:
        say(f" kept     {len(outcome.kept) - SHOWN} more, all of them in --json")
    for loss in found[:SHOWN]:
        decibels = "equal" if math.isinf(loss.snr_db) and loss.snr_db > 0 else f"SNR {loss.snr_db:.1f} dB"
        say(f" loss     {printable(loss.name)}: {decibels}, max abs {loss.max_abs:.3g}")
    if len(found) > SHOWN:
        say(f" loss     {len(found) - SHOWN} outputs more, all of them in --json")
    if any(loss.snr_db < POOR for loss in found):
        say(" loss     is large: leave nodes out with --exclude-nodes, or use another type; random inputs may mislead")
    if why is not None:
        say(f" loss     not measured: {printable(why)}")


def _carry_out(made: Any, payload: dict[str, Any], values: dict[str, Any]) -> None:
    from ..commands.convert import plan_json, report_json, show_plan, show_report
    from ..pipeline import execute

    show_plan(made)
    if values["dry_run"]:
        current().warn(made.graph.notes)
        current().say(" nothing written")
        current().emit({**plan_json(made), **payload, "warnings": notes_json(made.graph.notes)})
        return
    arguments.refuse_report(values)
    current().resume_hint = shlex.join(["candle-convert", *sys.argv[1:], "--resume"])
    report = execute(made, arguments.progress(values))
    show_report(report, made)
    full = {**report_json(report, made), **payload} if current().json or values["report"] else {}
    arguments.write_report(values["report"], full)
    current().emit(full)

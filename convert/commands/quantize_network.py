"""``quantize`` for networks: calibration data, passes, output loss, and the file."""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...runtime.base.errors import Error, UsageError, printable
from ...runtime.base.limits import size
from ...runtime.base.units import counted
from ...runtime.ir.graph import Graph
from ...runtime.passes.pattern.replace_nodes import graphs
from ...runtime.passes.precision.half import F16_MAX
from ..cli import option_values
from ..cluster import cluster_option
from ..console.output import current, human_size, notes_json
from ..quantize.calibration import calibrate, image_options
from ..quantize.calibration.loss import Loss, losses, random_inputs
from ..quantize.network import network_options, quantize_network
from ..quantize.network.request import Request
from ..run.image_preprocess import Look
from ..write.plan_report import plan_json, report_json, show_plan, show_report

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..cluster.conversion import ClusterCrew

MEASURED = 16
"""Samples that the loss is measured on at most."""
POOR = 10.0
"""Decibels below which outputs are hardly the original's."""
SHOWN = 10
"""Lines of a list on the screen."""


def quantize(
    graph: Graph,
    source: str,
    output: str,
    type_name: str | None,
    values: dict[str, Any],
    measured: Callable[[], dict[str, Any]] | None = None,
) -> None:
    """Quantize the network `graph`, opened from `source`, and write it.

    Args:
        measured: says what the written model has lost, and returns it as JSON.
    """
    from ..open.open_model import open_model
    from ..write.plan import plan_graph, with_settings
    from ..write.shard import refuse_inputs

    request = network_options.request(type_name, values)
    options = option_values.read_options(values)
    whole = open_model(
        source,
        options,
        format=values["source_format"],
        revision=values["revision"],
        offline=values["offline"],
        parts=True,
    )
    if graph.parts and values["calib"] is not None:
        why = f"--calib has the inputs of one graph, and the model has {len(graph.parts)}"
        hint = f"Quantize the files one by one, such as {graph.files[0]}"
        raise UsageError("E-OPTION", None, why, hint=hint)
    payload: dict[str, Any] = {"type": request.type, "kind": request.kind}
    if graph.parts:
        steps = []
        payload["graphs"] = {}
        originals = _networks(whole)
        for name, part in _networks(graph).items():
            current().say(f" graph    {printable(name)}")
            payload["graphs"][name], step = _quantized(originals[name], part, source, request, values)
            steps.append(step)
    else:
        found, step = _quantized(whole, graph, source, request, values)
        payload |= found
        steps = [step]
    chosen = option_values.convert_options({**values, "tensor_type": ()})
    made = plan_graph(graph, Path(output), chosen, [source])
    made.fingerprint = with_settings(made.fingerprint, *quantize_network.settings(steps))
    refuse_inputs(made)
    workers = None
    if values["cluster"] is not None:
        from ..cluster.network_conversion import networks_on_cluster

        workers = networks_on_cluster(values["cluster"], made, source, output, chosen, steps)
    _run_plan(made, payload, values, workers, measured)


def _networks(graph: Graph) -> dict[str, Graph]:
    """The graphs of a model that are quantized, by name: all, but for those that a pipeline has as they are stored."""
    from ..open.model_files import whole_of

    whole = whole_of(graph)
    return {name: part for name, part in graph.parts.items() if whole is None or not whole.parts[name].stored}


def _quantized(
    before: Graph, graph: Graph, source: str, request: Request, values: dict[str, Any]
) -> tuple[dict[str, Any], quantize_network.Step]:
    """Quantize a graph in place and show the loss; what was done as JSON, and all that decided the bytes.

    Args:
        before: the same graph once more, which is simplified.
        source: path of the model.
    """
    quantize_network.simplified(before, request)
    quantize_network.simplified(graph, request)
    data, ranges = _calibrated(graph, source, request, values)
    allowed = size(values["max_memory"])
    if request.type == "f16":
        request = dataclasses.replace(request, wide=_too_wide(before, allowed))
    outcome = quantize_network.quantize(graph, request, ranges)
    found, why = _measured(before, graph, None if data is None else (data, image_options.look(values)), allowed)
    _show(outcome, found, why, request)
    payload = {**outcome.to_json(), "loss": [loss.to_json() for loss in found], "not_measured": why}
    return payload, (request, ranges)


def _calibrated(
    graph: Graph, source: str, request: Request, values: dict[str, Any]
) -> tuple[str | None, quantize_network.Ranges]:
    """Path of the samples, None without samples, and the ranges of activations."""
    calib = values["calib"]
    if calib is None:
        return None, {}
    saved = str(calib).lower().endswith(".json")
    look = image_options.look(values)
    if saved:
        seen = calibrate.read(calib)
    elif values["cluster"] is None:
        seen = calibrate.calibrate(graph, calibrate.samples(calib, graph, look), told=_told)
    else:
        from ..cluster.network_runs import Ranges, calibrated_on

        cluster_option.check(values["cluster"], [source, calib])
        opening = cluster_option.opening(source, values)
        work = Ranges(opening, os.path.abspath(calib), look, {}, whole=True, request=request)
        seen = calibrated_on(values["cluster"], work, graph, None, _told)
    made = {value.name for inner in graphs(graph) for node in inner.nodes for value in node.outputs} | {
        value.name for value in graph.inputs
    }
    ranges = {name: span for name, span in seen.ranges(values["method"]).items() if name in made}
    if not ranges:
        why = "has no ranges for the values of this network"
        raise UsageError("E-CALIB-DATA", calib, why, hint="Run calibrate on the model to be quantized")
    return None if saved else calib, ranges


def _too_wide(graph: Graph, allowed: int) -> frozenset[str]:
    """Values that overflow f16 on random inputs; none if such inputs cannot be generated or memory does not suffice,
    which the loss says."""
    if sum(inner.nbytes for inner in graphs(graph)) > allowed:
        return frozenset()
    try:
        seen = calibrate.calibrate(graph, random_inputs(graph)).seen
    except Error:
        return frozenset()
    return frozenset(name for name, one in seen.items() if max(-one.low, one.high) > F16_MAX)


def _told(count: int) -> None:
    if count & (count - 1) == 0:
        current().say(f" calibrate {counted(count, 'sample')}")


def _measured(
    before: Graph, after: Graph, data: tuple[str, Look] | None, allowed: int
) -> tuple[list[Loss], str | None]:
    """The loss on data, else on made-up inputs; without one, why."""
    need = sum(inner.nbytes for graph in (before, after) for inner in graphs(graph))
    if need > allowed:
        return [], f"the weights of both networks are {counted(need, 'byte')}, --max-memory allows {allowed:,}"
    try:
        inputs = (
            random_inputs(before)
            if data is None
            else itertools.islice(calibrate.samples(data[0], before, data[1]), MEASURED)
        )
        return losses(before, after, inputs), None
    except Error as error:
        return [], f"{error.why}"


def _show(outcome: quantize_network.Outcome, found: list[Loss], why: str | None, request: Request) -> None:
    say = current().say
    ratio = outcome.before / max(outcome.after, 1)
    say(
        f" quantize {counted(len(outcome.weights), 'weight')} · {human_size(outcome.before)} to "
        f"{human_size(outcome.after)} ({ratio:.1f}x smaller)"
    )
    if outcome.stored:
        name, codes = next(iter(outcome.stored.items()))
        count = counted(len(outcome.stored), "weight", verb="is")
        example = f"{printable(name)} ({codes.name})"
        again = "" if request.allow_requantize else "; --allow-requantize does it again"
        say(f" kept     {count} already quantized, such as {example}{again}")
    for item in outcome.kept[:SHOWN]:
        say(f" kept     {item.operator} {printable(item.node)}: {item.why}")
    if len(outcome.kept) > SHOWN:
        say(f" kept     {len(outcome.kept) - SHOWN} more; --json lists all")
    for loss in found[:SHOWN]:
        decibels = "equal" if math.isinf(loss.snr_db) and loss.snr_db > 0 else f"SNR {loss.snr_db:.1f} dB"
        say(f" loss     {printable(loss.name)}: {decibels}, max abs {loss.max_abs:.3g}")
    if len(found) > SHOWN:
        say(f" loss     {counted(len(found) - SHOWN, 'output')} more; --json lists all")
    if any(loss.snr_db < POOR for loss in found):
        say(" loss     is large: skip nodes with --exclude-nodes, or use another type; random inputs may be misleading")
    if why is not None:
        say(f" loss     not measured: {printable(why)}")


def _run_plan(
    made: Any,
    payload: dict[str, Any],
    values: dict[str, Any],
    workers: ClusterCrew | None = None,
    measured: Callable[[], dict[str, Any]] | None = None,
) -> None:
    from ..write.pipeline import execute

    show_plan(made, workers)
    if values["dry_run"]:
        current().warn(made.graph.notes)
        current().say(" nothing written")
        current().emit({**plan_json(made), **payload, "warnings": notes_json(made.graph.notes)})
        return
    option_values.refuse_report(values)
    current().resumes()
    cluster_option.start(workers)
    report = execute(made, option_values.progress(values), workers)
    show_report(report, made, ("bench", made.target) if len(made.files) == 1 else None)
    payload |= {} if measured is None else measured()
    full = {**report_json(report, made), **payload} if current().json or values["report"] else {}
    option_values.write_report(values["report"], full)
    current().emit(full)

"""``inspect``: contents of a model file, from its headers."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from ...runtime.base.errors import Error, UsageError, printable
from ...runtime.base.units import counted, human_count
from ..cli import option_values, shared_options
from ..console.output import current, human_size, notes_json

if TYPE_CHECKING:
    from ...runtime.contract.quantization_scheme import Unpacked
    from ...runtime.ir.graph import Graph

GROUP = "Inspect and check"
EPILOG = """\b
Examples
  candle-convert inspect model.safetensors
  candle-convert inspect model-dir/ --include attn --json
  candle-convert inspect model.onnx --html model.html
"""
SHOWN = 60


@click.command("inspect", epilog=EPILOG)
@click.argument("path", metavar="FILE|DIR|hf://...", type=shared_options.PATH)
@click.option("--include", metavar="RE", multiple=True, help="Only tensors whose name matches.")
@click.option("--nodes", is_flag=True, help="Also list the nodes of a graph.")
@click.option(
    "--html",
    metavar="FILE",
    type=shared_options.TEXT_OUT,
    help="Write an HTML page: drawing of the graph, histograms of the weights.",
)
@click.option("-f", "--force", is_flag=True, help="Replace an existing page.")
@shared_options.options(shared_options.READING, shared_options.PROGRESS)
def COMMAND(path: str, include: tuple[str, ...], nodes: bool, **values: Any) -> None:  # noqa: N802
    """List tensors, graph, metadata and attached files.

    Reads headers only; --html also reads the weights.
    """
    from ...runtime.passes.weights.collect import collect_weights
    from ...runtime.passes.weights.select import Select
    from ..inspect.graph_summary import facts
    from ..open.prequantized import summary
    from ..translate.metadata_value import readable

    graph = option_values.open_input(path, values, upgraded=False, dequantized=False, parts=True)
    stored = _stored(graph)
    graph.weights = collect_weights(graph)
    whole, count, parameters = graph.nbytes, len(graph), _parameters(graph, stored)
    Select(include=include).run(graph)
    out = current()
    files = counted(len(graph.files) + len(graph.external_files), "file")
    out.say(
        f"{graph.format} · {files} · {counted(count, 'tensor')} · {human_count(parameters)} parameters · "
        f"{human_size(whole)}"
    )
    made_of = facts(graph, nodes=nodes) if graph.outputs else None
    if made_of is not None:
        _show_graph(graph, made_of)
    parts = {name: facts(part, nodes=nodes) for name, part in graph.parts.items()}
    for name, part in graph.parts.items():
        out.say()
        own = collect_weights(part)
        size = human_size(sum(tensor.nbytes for tensor in own.values()))
        out.say(f"{printable(os.path.basename(part.files[0]))} · {counted(len(own), 'tensor')} · {size}")
        _show_graph(part, parts[name])
    if parts:
        out.say()
    if values["html"] is not None:
        _draw(graph, path, values)
    rows = [
        (human_size(tensor.nbytes), tensor.dtype.name, _shape(tensor.shape), name)
        for name, tensor in graph.weights.items()
    ]
    out.table(("size", "dtype", "shape", "tensor"), rows, right=(0,))
    for title, lines in (
        ("metadata", [f"{printable(str(key))} = {_short(value)}" for key, value in graph.metadata.items()]),
        ("files", [f"{printable(name)}  {human_size(storage.nbytes)}" for name, storage in graph.attachments.items()]),
    ):
        if lines:
            out.say()
            out.say(title)
        for line in lines:
            out.say(f"  {line}")
    if stored is not None:
        out.say()
        out.say(f"{summary(stored)}, dequantized on reading")
    if out.json:
        out.emit(
            {
                "inputs": [*graph.files, *graph.external_files],
                "format": graph.format,
                "bytes": whole,
                "parameters": parameters,
                "tensors": [
                    {"name": name, "dtype": tensor.dtype.name, "shape": list(tensor.shape), "bytes": tensor.nbytes}
                    for name, tensor in graph.weights.items()
                ],
                "metadata": {str(key): readable(value) for key, value in graph.metadata.items()},
                "files": {name: storage.nbytes for name, storage in graph.attachments.items()},
                "warnings": notes_json(graph.notes),
                **({} if made_of is None else {"graph": made_of}),
                **({"graphs": parts} if parts else {}),
                **(
                    {}
                    if stored is None
                    else {"quantization": {"scheme": stored.title, "weights": sorted(stored.weights)}}
                ),
            }
        )


def _stored(graph: Graph) -> Unpacked | None:
    """The weights dequantized if they were quantized elsewhere; a scheme that is not known, or does not fit, is
    noted."""
    from ..open.prequantized import dequantized

    try:
        return dequantized(graph)
    except Error as error:
        graph.note(error.code, error.why)
        current().warn(graph.notes[-1:])
        return None


def _parameters(graph: Graph, stored: Unpacked | None) -> int:
    """Elements of the model's weights, those that were quantized elsewhere counted as the weights that they stand
    for."""
    if stored is None:
        return graph.parameters
    packed = {part for parts in stored.parts.values() for part in parts} | set(stored.unused)
    plain = sum(tensor.count for name, tensor in graph.weights.items() if name not in packed)
    return plain + sum(tensor.count for tensor in stored.weights.values())


def _draw(graph: Graph, path: str, values: dict[str, Any]) -> None:
    """The page of ``--html``; types that the file leaves out are inferred."""
    from ..console.atomic_replace import replacing
    from ..inspect.drawing.html_page import page, take_types, work

    if graph.parts:
        hint = f"Name one of them, such as {graph.files[0]}"
        raise UsageError("E-OPTION", None, "--html draws one graph, and the model has several", hint=hint)
    if graph.outputs:
        take_types(graph, option_values.open_input(path, values))
    progress = option_values.progress(values)
    progress.phase("reading")
    progress.start(work(graph))
    try:
        text = page(graph, path.rstrip("/").rpartition("/")[2], progress.advance)
    finally:
        progress.finish()
    with replacing(values["html"], force=values["force"]) as file:
        file.write(text.encode())
    current().say(f"drawn in {printable(values['html'])}")


def _show_graph(graph: Graph, made_of: dict[str, Any]) -> None:
    """Versions, inputs, outputs, operators and, where they are asked for, nodes."""
    from ..inspect.graph_summary import type_text

    out = current()
    producer = " ".join(made_of[key] for key in ("producer_name", "producer_version") if made_of.get(key))
    opsets = ", ".join(f"{domain} {version}" for domain, version in made_of["opsets"].items())
    below = f" and {made_of['nodes_in_subgraphs']} in subgraphs" if made_of["nodes_in_subgraphs"] else ""
    out.say(
        printable(
            f"IR {made_of.get('ir_version', '?')} · opset {opsets} · {counted(made_of['node_count'], 'node')}{below} · "
            f"{producer or 'no producer'}"
        )
    )
    for title, values in (("input", graph.inputs), ("output", graph.outputs)):
        for value in values:
            if title == "output" or value.name not in graph.weights:
                out.say(f"  {title:6}  {printable(value.name)}  {printable(type_text(value))}")
    out.say("  " + printable(", ".join(f"{name} x{count}" for name, count in made_of["operators"].items())))
    if "nodes" in made_of:
        rows = [
            (node["name"], node["operator"], ", ".join(node["inputs"]), ", ".join(node["outputs"]))
            for node in made_of["nodes"]
        ]
        out.table(("node", "operator", "inputs", "outputs"), rows)


def _shape(shape: tuple[int, ...]) -> str:
    return "[" + ", ".join(str(length) for length in shape) + "]"


def _short(value: Any) -> str:
    text = str(value.tolist()) if hasattr(value, "tolist") and getattr(value, "size", 0) <= SHOWN else str(value)
    text = printable(text[: SHOWN * 4])
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"

"""``graph``: simplifies, extracts, renames and types a network, or converts it to another opset."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...runtime.base.errors import UsageError, printable
from ..cli import option_values, output_path, shared_options
from ..console.output import current

if TYPE_CHECKING:
    from ...runtime.ir.graph import Graph

GROUP = "Convert"
EPILOG = """\b
Examples
  candle-convert graph simplify model.onnx slim.onnx
  candle-convert graph opset model.onnx model21.onnx --opset 21
  candle-convert graph extract model.onnx part.onnx --outputs hidden
"""
EXAMPLES = {
    "simplify": (
        "simplify model.onnx slim.onnx",
        "simplify model.onnx slim.onnx --max-fold 16MiB",
        "simplify model.onnx slim.onnx --skip norm",
    ),
    "opset": (
        "opset model.onnx out.onnx",
        "opset model.onnx out.onnx --opset 21",
        "opset model.onnx out.onnx --opset 18 --dry-run",
    ),
    "extract": (
        "extract model.onnx part.onnx --outputs hidden",
        "extract model.onnx part.onnx --inputs a --outputs c",
        "extract model.onnx part.onnx --outputs hidden --json",
    ),
    "shapes": (
        "shapes model.onnx typed.onnx",
        "shapes model.onnx typed.onnx --dim batch=8",
        "shapes model.onnx typed.onnx --force",
    ),
    "rename": (
        "rename model.onnx out.onnx --value x=image",
        "rename model.onnx out.onnx --dim batch=n",
        "rename model.onnx out.onnx --dim batch=1",
    ),
    "reduce": (
        "reduce model.onnx small.onnx",
        "reduce model.onnx out.onnx --input x.npz --device cuda",
        "reduce model.onnx out.onnx --fails './check.sh {}'",
    ),
}


@click.group("graph", epilog=EPILOG)
def COMMAND() -> None:  # noqa: N802
    """Simplify, cut, rename or retarget a network."""


def _command(name: str, *options: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command MODEL OUT with its own options and those of writing."""
    epilog = "\n".join(["\b", "Examples", *(f"  candle-convert graph {line}" for line in EXAMPLES[name])])

    def made(function: Callable[..., None]) -> Callable[..., None]:
        groups = shared_options.options(options, shared_options.GRAPHS, shared_options.PLACING, shared_options.READING)
        named = output_path.output(groups(function))
        return COMMAND.command(name, cls=output_path.Writing, epilog=epilog)(
            click.argument("model", metavar="MODEL", type=shared_options.PATH)(named)
        )

    return made


def _open(model: str, values: dict[str, Any]) -> Graph:
    graph = option_values.open_input(model, values)
    if not graph.outputs:
        raise UsageError("E-RUN-NODES", model, "holds weights only, without a graph", hint="Use an .onnx file")
    return graph


def _write(graph: Graph, model: str, output: str, values: dict[str, Any]) -> None:
    from ..write.plan import plan_graph
    from ..write.shard import refuse_inputs
    from .convert import run_plan

    made = plan_graph(graph, Path(output), option_values.convert_options(values), [model])
    refuse_inputs(made)
    run_plan(made, values)


@_command(
    "simplify",
    click.option(
        "--max-fold",
        default="1MiB",
        metavar="SIZE",
        help="Maximum growth in bytes of a folded constant over its inputs (default 1MiB).",
    ),
    click.option(
        "--skip",
        multiple=True,
        metavar="PASS",
        help="Skip a pass: inline, fold, identities, common, norm, bias, tidy, patterns, transposes, dead.",
    ),
)
def simplify(model: str, output: str, **values: Any) -> None:
    """Fold, merge and remove what changes nothing."""
    from ...formats.containers.onnx.opset_lowering import DEFAULT_OPSET
    from ...runtime.base.limits import size
    from ...runtime.passes.simplification import PASSES, Simplify

    for name in values["skip"]:
        if name not in PASSES:
            raise UsageError("E-OPTION", None, f"unknown pass {name!r}", hint=f"Passes: {', '.join(PASSES)}")
    graph = _open(model, values)
    before = len(graph.nodes)
    newest = values["opset"] or max(graph.opsets.get("", DEFAULT_OPSET), DEFAULT_OPSET)
    Simplify(size(values["max_fold"]), frozenset(values["skip"]), newest, lambda line: current().say(f" {line}")).run(
        graph
    )
    current().say(f" nodes    {before} before, {len(graph.nodes)} after")
    _write(graph, model, output, values)


@_command("opset")
def opset(model: str, output: str, **values: Any) -> None:
    """Convert to another opset, by default the lowest that fits."""
    _write(_open(model, values), model, output, values)


@_command(
    "extract",
    click.option("--inputs", multiple=True, metavar="NAME", help="Values to cut at; they become inputs."),
    click.option(
        "--outputs", multiple=True, required=True, metavar="NAME", help="Values to compute; they become the outputs."
    ),
)
def extract(model: str, output: str, **values: Any) -> None:
    """Extract the subgraph between given values."""
    from ...runtime.ir.shape_inference import infer
    from ...runtime.passes.weights.extract_subgraph import extract as part

    graph = _open(model, values)
    infer(graph)
    _write(part(graph, values["inputs"], values["outputs"]), model, output, values)


@_command(
    "shapes", click.option("--dim", "dims", multiple=True, metavar="NAME=N", help="Fix a symbolic dimension first.")
)
def shapes(model: str, output: str, **values: Any) -> None:
    """Infer the dtype and shape of every value and write them."""
    from ...runtime.ir.shape_inference import infer
    from ...runtime.passes.weights.rename_values import Rename
    from ..run.feeds import dims

    graph = _open(model, values)
    if values["dims"]:
        Rename(dims=dict(dims(values["dims"]))).run(graph)
    infer(graph)
    found = [value for node in graph.nodes for value in node.outputs if value.name]
    for value in found:
        value.carried = value.carried or {}
    known = sum(value.dtype is not None and value.shape is not None for value in found)
    whole = sum(value.shape is not None and all(isinstance(dim, int) for dim in value.shape) for value in found)
    current().say(f" values   {len(found)}: {known} with dtype and rank, {whole} with every length")
    _write(graph, model, output, values)


@_command(
    "rename",
    click.option(
        "--value", "names", multiple=True, metavar="OLD=NEW", help="An input, output, weight or intermediate value."
    ),
    click.option("--dim", "dims", multiple=True, metavar="OLD=NEW", help="A symbolic dimension; NEW may be a number."),
)
def rename(model: str, output: str, **values: Any) -> None:
    """Rename values and symbolic dimensions."""
    from ...runtime.passes.weights.rename_values import Rename

    names = dict(shared_options.pair(text, "--value OLD=NEW") for text in values["names"])
    dims = dict(shared_options.pair(text, "--dim OLD=NEW") for text in values["dims"])
    graph = _open(model, values)
    Rename(names, {old: int(new) if new.isdecimal() else new for old, new in dims.items()}).run(graph)
    _write(graph, model, output, values)


@_command(
    "reduce",
    click.option("--input", "inputs", multiple=True, metavar="NAME=VALUE", help="As for run."),
    click.option(
        "--fails",
        metavar="COMMAND",
        help="Command that exits non-zero when the model {} fails (default: outputs differ from onnxruntime's).",
    ),
    click.option("--rtol", type=float, default=1e-3, metavar="X", help="Relative tolerance, by the largest magnitude."),
    click.option("--atol", type=float, default=1e-5, metavar="X", help="Absolute tolerance."),
    *shared_options.DEVICE,
)
def reduce(model: str, output: str, **values: Any) -> None:
    """Reduce a failing model to the few nodes that still fail."""
    from ...runtime.ir.shape_inference import infer
    from ..run.failure_test import by_command, by_onnxruntime
    from ..run.feeds import feeds
    from ..run.reduce_graph import reduce as smallest

    placed = option_values.device(values)
    if values["fails"] is not None and placed["device"] != "cpu":
        raise UsageError(
            "E-OPTION", None, "--device is for the comparison with onnxruntime and cannot be combined with --fails"
        )
    graph = _open(model, values)
    infer(graph)
    fed, _ = feeds(graph, values["inputs"])
    fails = (
        by_onnxruntime(fed, values["rtol"], values["atol"], placed)
        if values["fails"] is None
        else by_command(values["fails"])
    )
    if not fails(graph):
        hint = "Give the inputs that make it fail with --input, or a test command with --fails"
        raise UsageError("E-GRAPH-WORKS", model, "does not fail", hint=hint)
    made = smallest(graph, fails, lambda line: current().say(f" {printable(line)}"))
    current().say(f" nodes    {len(graph.nodes)} before, {len(made.nodes)} after")
    _write(made, model, output, values)

"""``models``: supported architectures, and the architecture of a file."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from ...runtime.base.errors import FormatError, printable
from ...runtime.base.units import counted
from ..cli import option_values, shared_options
from ..console.output import current
from ..console.table import terminal_width

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...runtime.contract.architecture import Architecture
    from ...runtime.tensor.stored_tensor import StoredTensor

GROUP = "Tools"
EXAMPLES = {
    "": ("list", "show qwen3", "show model.gguf"),
    "list": ("list", "list glm", "list --json"),
    "show": ("show llama", "show model-dir/", "show model.gguf --json"),
}
COLUMNS = 80
"""Width of the list of architectures, also where output is not a terminal."""
SHOWN = 100
"""Characters of a parameter's value that a table shows."""


def _examples(command: str) -> str:
    return "\n".join(["\b", "Examples", *(f"  candle-convert models {line}" for line in EXAMPLES[command])])


@click.group("models", epilog=_examples(""))
def COMMAND() -> None:  # noqa: N802
    """List architectures, and show one or that of a file.

    Models of these architectures run, and convert between Hugging Face files, GGUF and ONNX.
    """


@COMMAND.command("list", epilog=_examples("list"))
@click.argument("words", metavar="[WORD]...", nargs=-1)
@shared_options.options()
def listed(words: tuple[str, ...]) -> None:
    """List the architectures whose names contain one of WORDs, by default all."""
    from ..inspect.architectures import families

    rows: list[dict[str, Any]] = [
        {
            "name": each.name,
            "title": each.title,
            "family": family,
            "model_types": list(each.model_types),
            "gguf": list(each.gguf),
            "sources": [*(["hf"] if each.model_types else []), *(["gguf"] if each.gguf else [])],
        }
        for family, each in sorted(families(), key=lambda found: found[1].name)
        if not words
        or any(
            word.lower() in name.lower()
            for word in words
            for name in (each.name, each.title, *each.model_types, *each.gguf)
        )
    ]
    out = current()
    cells = [[row["name"], row["title"], _other_names(row)] for row in rows]
    out.table(("architecture", "models", ""), cells, prose=(2,), width=min(terminal_width() or COLUMNS, COLUMNS))
    out.say(f"{counted(len(rows), 'architecture')}")
    out.next_step("models", "show", rows[0]["name"] if rows else "llama")
    out.emit({"models": rows})


def _other_names(row: Mapping[str, Any]) -> str:
    """Names of an architecture in config.json and GGUF files, where they are not its own."""
    named = (("model_type", row["model_types"]), ("GGUF", row["gguf"]))
    own = row["name"].replace("-", "_")
    others = ((key, [name for name in names if name.replace("-", "_") != own]) for key, names in named)
    return ", ".join(f"{key} {' '.join(names)}" for key, names in others if names)


@COMMAND.command("show", epilog=_examples("show"))
@click.argument("model", metavar="NAME|FILE", type=shared_options.PATH)
@shared_options.options(shared_options.READING)
@click.pass_context
def show(context: click.Context, /, model: str, **values: Any) -> None:
    """Show the hyper-parameter and weight names of an architecture, or of FILE.

    NAME is one of models list, a model_type or a general.architecture. For FILE (a GGUF file or a model directory)
    shows all hyper-parameters and whether every weight is present; exits with 1 if one is missing or does not fit.
    """
    from ..inspect.architectures import named, unknown

    found = named(model)
    if found is not None and not os.path.exists(model):
        _architecture(*found)
    elif found is None and not os.path.exists(model) and not any(mark in model for mark in "/.\\:"):
        raise unknown(model)
    elif not _file(model, values):
        context.exit(1)


def _architecture(family: str, architecture: Architecture) -> None:
    from ..inspect.architectures import parameters, weights

    keys, rows = parameters(architecture), weights(architecture)
    out = current()
    _head(family, architecture)
    out.say()
    cells = [
        [row["name"], " | ".join(row["hf"]), " | ".join(row["gguf"]), "required" if row["required"] else ""]
        for row in keys
    ]
    out.table(
        ("parameter", "config.json", f"GGUF, {architecture.gguf[0]}." if architecture.gguf else "GGUF", ""), cells
    )
    out.say()
    cells = [
        [row["name"], " | ".join(row["hf"]), " | ".join(row["gguf"]), _shape(row["shape"]), _said(row)] for row in rows
    ]
    out.table(("weight", "Hugging Face", "GGUF", "shape", ""), cells)
    out.emit({"model": _facts(family, architecture), "parameters": keys, "weights": rows})


def _head(family: str, architecture: Architecture) -> None:
    types = f" · model_type {', '.join(architecture.model_types)}" if architecture.model_types else ""
    gguf = f" · GGUF {', '.join(architecture.gguf)}" if architecture.gguf else ""
    tasks = ", ".join(task.name for task in architecture.tasks)
    current().say(f"{architecture.name} · {architecture.title}{types}{gguf} · {tasks}")


def _facts(family: str, architecture: Architecture) -> dict[str, Any]:
    return {
        "name": architecture.name,
        "title": architecture.title,
        "family": family,
        "model_types": list(architecture.model_types),
        "gguf": list(architecture.gguf),
        "tasks": [{"name": task.name, "graphs": list(task.graphs)} for task in architecture.tasks],
    }


def _shape(shape: list[str | int] | None) -> str:
    return "" if shape is None else f"[{', '.join(map(str, shape))}]"


def _said(row: dict[str, Any]) -> str:
    said = ["optional"] if row["optional"] else []
    said += ["some layers"] if row["some_layers"] else []
    return ", ".join(
        [*said, *(f"{names}: {' or '.join(dict.fromkeys(kinds))}" for names, kinds in row["layouts"].items())]
    )


def _file(path: str, values: dict[str, Any]) -> bool:
    """Whether every weight of a model is there and fits."""
    from ...runtime.contract.architecture import GRAPH, HF
    from ...runtime.contract.naming import bound_to
    from ...runtime.contract.weight_binding import bind, gather
    from ..inspect.architectures import families, parameters, plain
    from ..load.canonical_names import canonical_names
    from ..load.recognise import NODES, identified
    from ..open.graph_files import refuse_lone
    from ..translate.named_weights import identify_weights

    graph = canonical_names(option_values.open_input(path, values, parts=True))
    weights: Mapping[str, StoredTensor] = graph.weights
    if graph.format == NODES:
        if not graph.parts:
            refuse_lone(graph)
        known = identify_weights(graph)
        names, config = known.names, known.config
        architecture = bound_to(known.architecture, names, known.weights)
        stored = gather(architecture, config, known.weights, names).stored.values()
        weights = {name: known.weights[name] for _, each in stored for name in each}
    else:
        architecture, names, config = identified(graph)
    wrong: FormatError | None = None
    bound = {}
    try:
        bound = bind(architecture, config, weights, names, path)
    except FormatError as error:
        wrong = error
    family = next(family for family, each in families() if each.name == architecture.name)
    rows = [
        {
            "name": row["name"],
            "keys": row[HF] if names == GRAPH else row.get(names, [row["name"]]),
            "value": plain(config.values.get(row["name"])),
        }
        for row in parameters(architecture)
    ]
    count = sum(tensor.count for tensor in bound.values())
    out = current()
    _head(family, architecture)
    out.say()
    out.table(
        ("parameter", "value", "keys"), [[row["name"], _value(row["value"]), " | ".join(row["keys"])] for row in rows]
    )
    out.say()
    if wrong is None:
        out.say(f"✓ {counted(len(bound), 'weight')}, {counted(count, 'parameter')}: all weights are present")
    else:
        out.say(f"✗ {wrong}")
    out.emit(
        {
            "inputs": [path],
            "model": _facts(family, architecture),
            "names": names,
            "parameters": rows,
            "weights": len(bound),
            "count": count,
            "whole": wrong is None,
            "problem": None if wrong is None else wrong.to_json(),
        },
        ok=wrong is None,
    )
    return wrong is None


def _value(value: Any) -> str:
    text = printable(str(value))
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"

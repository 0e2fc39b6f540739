"""``metadata``: shows and edits the keys and values of a model file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ...runtime.base.errors import UsageError, printable
from ..cli import option_values, shared_options
from ..console.output import current

if TYPE_CHECKING:
    from ...runtime.ir.graph import Graph, Meta

GROUP = "Convert"
SHOWN = 60
EPILOG = """\b
Examples
  candle-convert metadata show model.gguf
  candle-convert metadata set model.gguf general.license apache-2.0
  candle-convert metadata copy old.gguf new.gguf --include '^tokenizer\\.'
"""


EXAMPLES = {
    "show": ("show model.gguf", "show model.safetensors --full", "show model-dir/ --include licen --json"),
    "get": (
        "get model.gguf general.name",
        "get model.gguf tokenizer.chat_template",
        "get model.safetensors format --json",
    ),
    "set": (
        "set model.gguf general.name Mine",
        "set model.gguf llama.block_count 32 --type u32",
        "set model.onnx model_version 3",
    ),
    "unset": ("unset model.gguf general.url", "unset model.safetensors a b c --dry-run", "unset model.onnx doc_string"),
    "copy": (
        "copy old.gguf new.gguf",
        "copy old.gguf new.gguf --include '^tokenizer\\.'",
        "copy a.safetensors b.safetensors --dry-run",
    ),
}


def _examples(command: str) -> str:
    return "\n".join(["\b", "Examples", *(f"  candle-convert metadata {line}" for line in EXAMPLES[command])])


@click.group("metadata", epilog=EPILOG)
def COMMAND() -> None:  # noqa: N802
    """Show, set, remove and copy the metadata of a model.

    A change writes a new file and then replaces the old one; tensors are copied and read back. For ONNX models,
    producer_name, producer_version, domain, model_version and doc_string are keys too; external data files and all
    other bytes stay unchanged.
    """


CHANGING = (
    click.option("-o", "--output", "--outfile", metavar="OUT", type=shared_options.PATH, help="Write to another file."),
    *shared_options.PLACING,
)


@COMMAND.command("show", epilog=_examples("show"))
@click.argument("path", metavar="FILE", type=shared_options.PATH)
@click.option("--full", is_flag=True, help="Show long values in full.")
@click.option("--include", multiple=True, metavar="RE", help="Only keys that match.")
@shared_options.options(shared_options.READING)
def show(path: str, full: bool, include: tuple[str, ...], **values: Any) -> None:
    """List keys, types and values."""
    from ..translate.metadata_value import kind_of, readable
    from ..write.metadata_edit import keys_of

    chosen = _chosen(keys_of(_opened(path, values)), include, ())
    current().table(
        ("key", "type", "value"), [(key, kind_of(value), _text(value, full)) for key, value in chosen.items()]
    )
    listed = {str(key): {"type": kind_of(value), "value": readable(value)} for key, value in chosen.items()}
    current().emit({"inputs": [path], "metadata": listed})


@COMMAND.command("get", epilog=_examples("get"))
@click.argument("path", metavar="FILE", type=shared_options.PATH)
@click.argument("name", metavar="KEY")
@shared_options.options(shared_options.READING)
def get(path: str, name: str, **values: Any) -> int:
    """Print the value of KEY in full; exits with 1 if the key is missing."""
    from ..translate.metadata_value import kind_of, readable
    from ..write.metadata_edit import keys_of

    known = keys_of(_opened(path, values))
    found, value = name in known, known.get(name)
    out = current()
    if found:
        out.content(_text(value, True, raw=True))
    elif not out.json:
        out.complain(f"no metadata key {name!r}")
    out.emit(
        {"inputs": [path], "key": name, "type": kind_of(value) if found else None, "value": readable(value)}, ok=found
    )
    return 0 if found else 1


@COMMAND.command("set", context_settings={"ignore_unknown_options": True}, epilog=_examples("set"))
@click.argument("path", metavar="FILE", type=shared_options.PATH)
@click.argument("name", metavar="KEY")
@click.argument("value")
@click.option(
    "--type",
    "kind",
    metavar="TYPE",
    help="u8 ... i64, f32, f64, bool, str, json, i32[] (default: the type of the old value).",
)
@shared_options.options(CHANGING, shared_options.READING)
def set_(path: str, name: str, value: str, kind: str | None, **values: Any) -> None:
    """Set KEY to VALUE."""
    from ..translate.metadata_value import typed
    from ..write.metadata_edit import keys_of

    graph = _opened(path, values)
    _change(graph, path, {name: typed(value, kind, keys_of(graph).get(name))}, values)


@COMMAND.command("unset", epilog=_examples("unset"))
@click.argument("path", metavar="FILE", type=shared_options.PATH)
@click.argument("keys", metavar="KEY...", nargs=-1, required=True)
@shared_options.options(CHANGING, shared_options.READING)
def unset(path: str, keys: tuple[str, ...], **values: Any) -> None:
    """Remove keys."""
    from ..write.metadata_edit import keys_of

    graph = _opened(path, values)
    known = keys_of(graph)
    for key in keys:
        if key not in known:
            raise UsageError(
                "E-META-KEY", path, f"no metadata key {key!r}", hint="List them with candle-convert metadata show"
            )
    _change(graph, path, dict.fromkeys(keys), values)


@COMMAND.command("copy", epilog=_examples("copy"))
@click.argument("source", metavar="FROM", type=shared_options.PATH)
@click.argument("path", metavar="TO", type=shared_options.PATH)
@click.option("--include", multiple=True, metavar="RE", help="Only keys that match.")
@click.option("--exclude", multiple=True, metavar="RE", help="Skip keys that match.")
@shared_options.options(CHANGING, shared_options.READING)
def copy(source: str, path: str, include: tuple[str, ...], exclude: tuple[str, ...], **values: Any) -> None:
    """Set the keys of FROM in TO; other keys of TO stay."""
    from ..write.metadata_edit import keys_of

    donor, graph = _opened(source, values), _opened(path, values)
    _change(graph, path, _chosen(keys_of(donor), include, exclude), values)


def _change(graph: Graph, path: str, new: dict[str, Meta], values: dict[str, Any]) -> None:
    from ..write import metadata_edit
    from ..write.plan_report import plan_json

    changes = metadata_edit.changes_of(graph, new)
    out = current()
    for change in changes:
        sides = [_text(side, False) if side is not None else "(none)" for side in (change.old, change.new)]
        out.say(f"{printable(change.key)}: {sides[0]} → {sides[1]}")
    payload: dict[str, Any] = {"inputs": [path], "changes": [change.to_json() for change in changes]}
    if not changes and values["output"] is None:
        out.say("nothing to change")
        out.emit({**payload, "outputs": [], "dry_run": values["dry_run"]})
        return
    plan = metadata_edit.plan_rewrite(graph, path, values["output"], changes, option_values.convert_options(values))
    if values["dry_run"]:
        out.say("nothing written")
    else:
        report = metadata_edit.rewrite(plan, option_values.progress(values))
        out.say(f"✓ {printable(', '.join(report.outputs))}")
    out.emit({**payload, "outputs": plan_json(plan)["outputs"], "dry_run": values["dry_run"]})


def _opened(path: str, values: dict[str, Any]) -> Graph:
    """The model as the file has it."""
    return option_values.open_input(path, values, upgraded=False, dequantized=False)


def _chosen(known: dict[str, Meta], include: tuple[str, ...], exclude: tuple[str, ...]) -> dict[str, Meta]:
    from ...runtime.base.untrusted.regex import compiled

    wanted, unwanted = ([compiled(pattern) for pattern in patterns] for patterns in (include, exclude))
    return {
        key: value
        for key, value in known.items()
        if (not wanted or any(pattern.search(str(key)) for pattern in wanted))
        and not any(pattern.search(str(key)) for pattern in unwanted)
    }


def _text(value: Meta, full: bool, *, raw: bool = False) -> str:
    """A value as text, cut to a line unless `full`, with control characters visible unless `raw`."""
    if hasattr(value, "tolist"):
        short = value if full or not getattr(value, "ndim", 0) else value[: SHOWN + 1]
        value = short.tolist()
    shown = value if full or not isinstance(value, list | str) else value[: SHOWN + 1]
    text = str(shown).lower() if isinstance(shown, bool) else str(shown)
    text = text if raw else printable(text)
    return text if full or len(text) <= SHOWN else f"{text[:SHOWN]}…"

"""``tokenizer``: shows, runs, checks and exports the tokenizer of a model."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...runtime.base.errors import UnsupportedError, printable
from ...runtime.base.units import counted
from ..cli import option_values, output_path, shared_options
from ..console.output import current
from ..console.stdio import STREAM

if TYPE_CHECKING:
    from ...models.tokenizer import Tokenizer
    from ...runtime.ir.graph import Graph

GROUP = "Convert"
EXAMPLES = {
    "": ("show model.gguf", "encode model-dir/ 'Hello, world'", "export model.gguf files/"),
    "show": ("show model.gguf", "show tokenizer.json --tokens '^<'", "show model-dir/ --json"),
    "encode": (
        "encode model.gguf 'Hello <|im_end|>'",
        "encode tokenizer.model 'a b' --no-special --bos",
        "encode model-dir/ --file text.txt --json",
    ),
    "decode": (
        "decode model.gguf 1 15043 3186",
        "decode tokenizer.json 9906,1917 --special",
        "decode model-dir/ 1 2 3 --json",
    ),
    "roundtrip": (
        "roundtrip model.gguf",
        "roundtrip model-dir/ --against model.gguf",
        "roundtrip tokenizer.model --json",
    ),
    "export": ("export model.gguf files/", "export model-dir/ vocab.gguf", "export tokenizer.model files/ --force"),
}


def _examples(command: str) -> str:
    return "\n".join(["\b", "Examples", *(f"  candle-convert tokenizer {line}" for line in EXAMPLES[command])])


@click.group("tokenizer", epilog=_examples(""))
def COMMAND() -> None:  # noqa: N802
    """Show, run, check and export the tokenizer of a model.

    FILE is a GGUF file, a model directory, or a tokenizer file: tokenizer.json, tokenizer.model, vocab.json,
    vocab.txt, *.tiktoken ...
    """


def _opened(path: str, values: dict[str, Any]) -> tuple[Graph, Tokenizer]:
    from ..translate.open_tokenizer import mismatch, open_tokenizer

    graph, tokenizer = open_tokenizer(
        path,
        options=option_values.read_options(values),
        format=values["source_format"],
        revision=values["revision"],
        offline=values["offline"],
    )
    wrong = mismatch(graph, tokenizer)
    if wrong is not None:
        graph.note("W-TOKENIZER-ROWS", wrong)
    current().warn(graph.notes)
    return graph, tokenizer


@COMMAND.command("show", epilog=_examples("show"))
@click.argument("path", metavar="FILE", type=shared_options.PATH)
@click.option("--tokens", metavar="RE", help="List the tokens whose text matches.")
@click.option("--template", "template", is_flag=True, help="Print the chat templates in full.")
@shared_options.options(shared_options.READING)
def show(path: str, tokens: str | None, template: bool, **values: Any) -> None:
    """Show the kind of tokenizer, its special tokens and chat templates."""
    graph, tokenizer = _opened(path, values)
    facts = _facts(graph, tokenizer)
    out = current()
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in facts["kinds"].items())
    rows = [
        ("kind", facts["kind"]),
        ("tokens", f"{facts['tokens']:,} ({kinds})"),
        ("embedding", facts["embedding_rows"] or "unknown"),
    ]
    rows += [(role, f"{said['id']} {said['text']!r}") for role, said in facts["roles"].items()]
    rows += [("ends a text", " ".join(map(str, facts["ends"])) or "none")]
    rows += [("added", f"{facts['opening']} before a text, {facts['closing']} after it")]
    rows += [("template", f"{name}, {counted(length, 'character')}") for name, length in facts["templates"].items()]
    out.table(("", ""), [(name, printable(str(value))) for name, value in rows])
    listed = _matching(tokenizer, tokens) if tokens is not None else []
    if tokens is not None:
        out.say()
        lines = [(row["id"], row["type"], row["score"], printable(repr(row["text"]))) for row in listed]
        out.table(("id", "type", "score", "text"), lines, right=(0, 2))
    if template:
        for name, text in tokenizer.templates.items():
            out.say()
            out.say(f"{name}:")
            out.content(text)
    out.emit(
        {"inputs": [path], **facts, "listed": listed, **({"template_texts": tokenizer.templates} if template else {})}
    )


def _facts(graph: Graph, tokenizer: Tokenizer) -> dict[str, Any]:
    from ...models.tokenizer.core.vocabulary import KINDS
    from ..translate.open_tokenizer import embedding_rows

    vocabulary = tokenizer.vocabulary
    return {
        "kind": tokenizer.origin, "tokens": len(tokenizer), "embedding_rows": embedding_rows(graph),
        "kinds": {KINDS[kind]: count for kind, count in sorted(Counter(vocabulary.kinds).items())},
        "roles": {role: {"id": token, "text": vocabulary.texts[token]} for role, token in vocabulary.roles.items()},
        "ends": sorted(tokenizer.ends), "opening": list(tokenizer.opening), "closing": list(tokenizer.closing),
        "templates": {name: len(text) for name, text in tokenizer.templates.items()},
    }  # fmt: skip


def _matching(tokenizer: Tokenizer, pattern: str) -> list[dict[str, Any]]:
    from ...models.tokenizer.core.vocabulary import KINDS
    from ...runtime.base.untrusted.regex import compiled

    vocabulary, wanted = tokenizer.vocabulary, compiled(pattern)
    scores = vocabulary.scores or [0.0] * len(vocabulary)
    return [
        {"id": token, "type": KINDS[vocabulary.kinds[token]], "score": float(scores[token]), "text": text}
        for token, (text, listed) in enumerate(zip(vocabulary.texts, wanted.among(vocabulary.texts), strict=True))
        if listed
    ]


@COMMAND.command("encode", epilog=_examples("encode"))
@click.argument("path", metavar="FILE", type=shared_options.PATH)
@click.argument("text", required=False)
@click.option(
    "--file", "file", metavar="TEXT", type=shared_options.PATH, help="Encode a file instead; - is standard input."
)
@click.option("--special/--no-special", default=True, help="Parse special tokens in the text (default: yes).")
@click.option("--bos/--no-bos", default=None, help="Add BOS at the start (default: as the model was trained).")
@click.option("--eos/--no-eos", default=None, help="Add EOS at the end (default: as the model was trained).")
@click.option("--ids", is_flag=True, help="Print only the ids, on one line.")
@shared_options.options(shared_options.READING)
def encode(
    path: str,
    text: str | None,
    file: str | None,
    special: bool,
    bos: bool | None,
    eos: bool | None,
    ids: bool,
    **values: Any,
) -> None:
    """Encode TEXT to token ids."""
    _, tokenizer = _opened(path, values)
    content = _content(text, file)
    found = tokenizer.encode(content, special=special, add_bos=bos, add_eos=eos)
    out = current()
    unknown = tokenizer.unknown_markers(content) if special else []
    if unknown:
        out.note(f"! W-TOKENIZER-MARKER  {', '.join(unknown)} look like special tokens but are not in the vocabulary")
    texts = [tokenizer.vocabulary.texts[token] for token in found]
    if ids:
        out.say(" ".join(map(str, found)))
    else:
        out.table(
            ("id", "token"),
            [(token, printable(repr(text))) for token, text in zip(found, texts, strict=True)],
            right=(0,),
        )
        out.say(f"{counted(len(found), 'token')}")
    out.emit({"inputs": [path], "ids": found, "tokens": texts, "unknown_markers": unknown})


def _content(text: str | None, file: str | None) -> str:
    if (text is None) == (file is None):
        raise click.UsageError("Give TEXT, or a file with --file")
    if text is not None:
        return text
    if file == "-":
        return sys.stdin.read()
    from ...runtime.tensor.file import Source

    source = Source(str(file))
    source.budget.charge(source.size, "the text")
    return source.read(0, source.size).decode("utf-8", "replace")


@COMMAND.command("decode", epilog=_examples("decode"))
@click.argument("path", metavar="FILE", type=shared_options.PATH)
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@click.option("--special", is_flag=True, help="Include special tokens.")
@shared_options.options(shared_options.READING)
def decode(path: str, ids: tuple[str, ...], special: bool, **values: Any) -> None:
    """Decode token ids to text."""
    from ..translate.open_tokenizer import parse_ids

    _, tokenizer = _opened(path, values)
    numbers = parse_ids(ids)
    text = tokenizer.decode(numbers, special=special)
    current().content(text, exact=True)
    current().emit({"inputs": [path], "ids": numbers, "text": text})


@COMMAND.command("roundtrip", epilog=_examples("roundtrip"))
@click.argument("path", metavar="FILE", type=shared_options.PATH)
@click.option(
    "--against", metavar="OTHER", type=shared_options.PATH, help="Also compare the ids with those of another tokenizer."
)
@shared_options.options(shared_options.READING)
def roundtrip(path: str, against: str | None, **values: Any) -> int:
    """Check that encoding and decoding restores texts, and that GGUF and tokenizer.json give equal ids; exits with 1 if
    not.

    The test texts cover many scripts, emoji, combining marks, code and unusual white space.
    """
    from ...models.tokenizer.writers.tokenizer_differences import differing
    from ..translate.open_tokenizer import round_trips

    graph, tokenizer = _opened(path, values)
    found = [] if against is not None else round_trips(graph, tokenizer)
    if against is not None:
        _, other = _opened(against, values)
        found = [{"through": against, "text": text, "back": None} for text in differing(tokenizer, other)]
    out = current()
    for row in found:
        came = "tokenizes differently" if row["back"] is None else f"came back as {row['back']!r}"
        out.say(f"✗ {row['through']}: {printable(repr(row['text'][:60]))} {printable(came)}")
    if not found:
        out.say("✓ equal ids" if against is not None else "✓ texts round-trip; GGUF and tokenizer.json give equal ids")
    out.emit({"inputs": [path] if against is None else [path, against], "differences": found}, ok=not found)
    return 1 if found else 0


@COMMAND.command("export", cls=output_path.Writing, epilog=_examples("export"))
@click.argument("path", metavar="FILE", type=shared_options.PATH)
@output_path.output
@click.option("-f", "--force", is_flag=True, help="Replace existing files.")
@shared_options.options(shared_options.READING)
def export(path: str, output: str, force: bool, **values: Any) -> None:
    """Write only the tokenizer: OUT is a directory for transformers' files, a .gguf file, or - for tokenizer.json on
    standard output."""
    from ..console.atomic_replace import replacing
    from ..translate.open_tokenizer import as_files, as_gguf

    graph, _ = _opened(path, values)
    told = len(graph.notes)
    out = current()
    if output.lower().endswith(".gguf"):
        written = [output]
        _write_gguf(as_gguf(graph), output, force)
    elif output == STREAM:
        written, out.quiet = [output], True
        with replacing(output, force=force) as file:
            file.write(_json(as_files(graph), path))
    else:
        written = _write_files(as_files(graph), Path(output), force)
    out.warn(graph.notes[told:])
    out.say(f"✓ {printable(', '.join(written))}")
    out.emit(
        {
            "inputs": [path],
            "outputs": written,
            "warnings": [{"code": note.code, "message": note.message} for note in graph.notes],
        }
    )


def _json(files: dict[str, bytes], path: str) -> bytes:
    """The tokenizer.json among a tokenizer's files."""
    if "tokenizer.json" not in files:
        why = "its tokenizer consists of several files"
        raise UnsupportedError("E-OUT-STREAM", path, why, found=", ".join(files), hint="Use a directory")
    return files["tokenizer.json"]


def _write_gguf(graph: Graph, output: str, force: bool) -> None:
    from ..write import pipeline
    from ..write.conversion_options import Options
    from ..write.plan import plan_graph

    pipeline.execute(plan_graph(graph, Path(output), Options(to="gguf", weights_only=True, force=force)))


def _write_files(files: dict[str, bytes], folder: Path, force: bool) -> list[str]:
    from ..console.atomic_replace import make_folder, refuse_existing, replacing

    for name in sorted(files):
        refuse_existing(folder / name, force=force)
    make_folder(folder)
    for name, content in files.items():
        with replacing(folder / name, force=force) as file:
            file.write(content)
    return [str(folder / name) for name in files]

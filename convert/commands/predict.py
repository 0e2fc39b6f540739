"""``predict``: what a model finds in its inputs: labels, spans, answers, tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import click

from ..cli import shared_options
from ..console.output import current, notes_json
from ..console.status_line import busy

EPILOG = """\b
Examples
  candle-convert predict classifier_dir "What a lovely day!"
  candle-convert predict squad_dir "Who sat?" --context "A cat sat there."
  candle-convert predict bert_dir "Paris is the [MASK]." --top 3 --json
"""


@click.command("predict", epilog=EPILOG)
@click.argument("model", metavar="MODEL", type=shared_options.PATH)
@click.argument("inputs", metavar="[INPUT ...]", nargs=-1)
@click.option(
    "-f", "--file", metavar="FILE", type=shared_options.PATH, help="File with one input a line; - reads standard input."
)
@click.option("--context", metavar="TEXT", help="The text that answers a question, or the second text of a pair.")
@click.option("--task", metavar="NAME", help="Task of the model, such as fill-mask (default: as the model says).")
@click.option("--top", type=click.IntRange(1), metavar="N", help="Show the N most probable results of an input.")
@click.option("--batch", type=click.IntRange(1), default=32, metavar="N", help="Inputs of one run (default 32).")
@shared_options.options(shared_options.RUNNING, shared_options.PROGRESS, shared_options.DEVICE, shared_options.READING)
def COMMAND(model: str, inputs: tuple[str, ...], **values: Any) -> None:  # noqa: N802
    """Show what a model finds in its inputs.

    An INPUT is a text; FILE has one a line. The task is the model's: labels of a text or of a pair, labeled spans, the
    answer to a question, the tokens in place of a mask. MODEL is a Hugging Face directory, a GGUF file, or an ONNX file
    with its tokenizer in the same directory.
    """
    from ..run.text_lines import Counter, cut_texts, texts_of

    given = texts_of(inputs, values["file"], "INPUT")
    found = shared_options.load_for("predict", model, values, values["task"])
    options = {name: values[name] for name in ("context", "top") if values[name] is not None}
    with cut_texts() as notes:
        results = found.predict(
            given, batch=values["batch"], progress=Counter(shared_options.progress(values), "predicting"), **options
        )
    busy().stop()
    out = current()
    out.warn(notes)
    _show(given, results)
    pairs = [{"input": text, "found": rows} for text, rows in zip(given, results, strict=True)]
    out.emit({"inputs": [model], "task": found.task, "results": pairs, "warnings": notes_json(notes)})


def _show(given: Sequence[str], results: Sequence[Any]) -> None:
    """One table of all results."""
    rows = [row for text, each in zip(given, results, strict=True) for row in _rows(text, each)]
    if not rows:
        current().say("nothing found")
        return
    shown = [name for name in max(rows, key=len) if name != "input" or len(given) > 1]
    table = [[_shown(row.get(name, "")) for name in shown] for row in rows]
    current().table(
        shown, table, right=[place for place, name in enumerate(shown) if not isinstance(max(rows, key=len)[name], str)]
    )


def _shown(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def _rows(text: str, found: Sequence[Any]) -> Iterator[dict[str, Any]]:
    """Results of an input with the input, and the number of the mask where a text has several."""
    for number, each in enumerate(found, 1):
        if isinstance(each, dict):
            yield {"input": text, **each}
        else:
            yield from ({"input": text, "mask": number, **row} for row in each)

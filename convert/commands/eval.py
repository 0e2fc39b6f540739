"""``eval``: how good a network is on data or a language model on a text, and how much better or worse than another."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...runtime.errors import FileAccessError, UsageError
from ...runtime.units import counted
from .. import arguments
from ..output import current

if TYPE_CHECKING:
    from ..running.datasets import Source
    from ..running.evaluating import Figure

EPILOG = """\b
Examples
  candle-convert eval int8.onnx -d images/ --metric top1 --against f32.onnx
  candle-convert eval model.onnx --data test.npz --metric mine.py
  candle-convert eval q4.gguf -d wiki.raw --metric kld --against f16.gguf
"""
TEXT_METRICS = ("ppl", "kld")
PICTURES = (
    click.option("--size", metavar="HxW", help="Pictures: height and width of the input (default: what the model says)."),
    click.option("--resize", type=click.IntRange(1), metavar="N", help="Pictures: shorter side before the middle is cut out."),
    click.option("--mean", default="0", metavar="R,G,B", help="Pictures: subtracted from values of 0 to 1 (0.485,0.456,0.406)."),
    click.option("--std", default="1", metavar="R,G,B", help="Pictures: divided by afterwards (0.229,0.224,0.225)."),
    click.option("--order", default="rgb", type=click.Choice(["rgb", "bgr"]), help="Pictures: order of channels."),
    click.option("--layout", type=click.Choice(["nchw", "nhwc"]), help="Pictures: order of axes (default: by the input's shape)."),
    click.option("--classes", metavar="FILE", type=arguments.PATH, help="Names of the folders in the order of classes, one a line."),
)
TEXTS = (
    click.option("--context", type=click.IntRange(1), default=512, metavar="N", help="ppl, kld: tokens of a piece of the text (default 512)."),
    click.option("--chunks", type=click.IntRange(1), metavar="N", help="ppl, kld: only the first N pieces."),
)


@click.command("eval", epilog=EPILOG)
@click.argument("model", metavar="MODEL", type=arguments.PATH)
@click.option("-d", "--data", required=True, metavar="DATA", type=arguments.PATH, help="npz of inputs and labels, folder of npz or pictures, text.")
@click.option("--metric", "metrics", multiple=True, metavar="NAME", help="top1 (default), top5, mse, mae, cosine, map, map50, FILE.py, ppl, kld.")
@click.option("--against", metavar="OTHER", type=arguments.PATH, help="Another model on the same data; the difference has an interval.")
@click.option("--labels", metavar="NAME", help="Array of the npz, or file .npy, that says what is right.")
@click.option("--value", "chosen", metavar="NAME", help="The output that is scored (default: the first).")
@click.option("--batch", type=click.IntRange(1), metavar="N", help="Samples in one run (default: what the model takes, or 32).")
@click.option("--samples", type=click.IntRange(1), metavar="N", help="Only the first N samples.")
@click.option("--threads", type=click.IntRange(1), metavar="N", help="Threads (default: the cores).")
@arguments.options(PICTURES, TEXTS, arguments.DEVICE, arguments.PROGRESS, arguments.READING)
def COMMAND(model: str, **values: Any) -> None:  # noqa: N802 (the name that the registry looks for)
    """Score a network on data, or a language model on a text.

    A network's figures have 95 % intervals, a language model's standard errors.

    The first axis of every array counts samples. A metric FILE.py is your own code and runs as such: a function metric(outputs, targets) of two
    dictionaries of arrays that gives a number for each sample. No file but the one that you name is ever run. ppl is the perplexity, and kld how far
    the predictions are from those of --against, over the second half of each piece of the text, as llama-perplexity computes them.
    """
    if set(values["metrics"]) & set(TEXT_METRICS):
        _on_texts(model, values)
    else:
        _on_samples(model, values)


def _on_samples(model: str, values: dict[str, Any]) -> None:
    from ..running import datasets
    from ..running.evaluating import evaluate
    from ..running.metrics import metric

    placed = arguments.device(values)
    graph = _open(model, values)
    against = None if values["against"] is None else _open(values["against"], values)
    metrics = [metric(name) for name in values["metrics"] or ("top1",)]
    data = datasets.read(_source(values), graph)
    figures = evaluate(graph, data, metrics, against=against, chosen=values["chosen"], threads=values["threads"], placed=placed)
    _show(figures)
    models = [model, *([values["against"]] if values["against"] else [])]
    current().emit({"inputs": models, "data": values["data"], "samples": figures[0].samples, "metrics": [each.to_json() for each in figures]})


def _on_texts(model: str, values: dict[str, Any]) -> None:
    from ..modelling import load
    from ..running import texts
    from ..running.perplexity import score

    wanted, against = set(values["metrics"]), values["against"]
    if wanted - set(TEXT_METRICS):
        raise UsageError("E-OPTION", None, f"{', '.join(sorted(wanted - set(TEXT_METRICS)))} and text metrics cannot be combined")
    if "kld" in wanted and against is None:
        raise UsageError("E-OPTION", None, "kld compares with another model", hint="--against MODEL, usually the one before quantization")
    placed = arguments.device(values)
    language = load(arguments.open_input(model, values), values["threads"], **placed)
    other = None if against is None else load(arguments.open_input(against, values), values["threads"], **placed)
    cut = texts.pieces(language.tokenizer, [values["data"]], values["context"], values["chunks"])
    scores = score(language, cut, other, arguments.progress(values))
    found = scores.estimates()
    current().table(("metric", "value", "± error"), [(each.metric, f"{each.value:.6g}", _error(each.error)) for each in found], right=(1, 2))
    current().say(f"{scores.count:,} tokens scored, of {counted(len(cut), 'piece')} of {values['context']}")
    said = {"tokens": scores.count, "pieces": len(cut), "context": values["context"], "metrics": [each.to_json() for each in found]}
    current().emit({"inputs": [model, *([against] if against else [])], "data": values["data"], **said})


def _error(error: float | None) -> str:
    return "" if error is None else f"{error:.3g}"


def _open(path: str, values: dict[str, Any]) -> Any:
    graph = arguments.open_input(path, values)
    if not graph.nodes:
        raise UsageError("E-RUN-NODES", path, "holds weights only, there is nothing to run", hint="Run an .onnx file")
    return graph


def _source(values: dict[str, Any]) -> Source:
    from ..running.datasets import Source
    from ..running.pictures import Look

    size = None
    if values["size"] is not None:
        height, _, width = values["size"].partition("x")
        if not height.isdecimal() or not width.isdecimal() or not int(height) * int(width):
            raise UsageError("E-OPTION", None, f"--size {values['size']!r} is not of the form HxW")
        size = (int(height), int(width))
    look = Look(size, values["resize"], _numbers(values["mean"], "--mean"), _numbers(values["std"], "--std"), values["order"], values["layout"])
    return Source(values["data"], values["labels"], _names(values["classes"]), values["batch"], values["samples"], look)


def _numbers(text: str, option: str) -> list[float]:
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError as error:
        raise UsageError("E-OPTION", None, f"{option} {text!r} is not a list of numbers") from error
    if len(numbers) not in (1, 3):
        raise UsageError("E-OPTION", None, f"{option} needs one number, or one for each channel", expected="1 or 3", found=len(numbers))
    return numbers


def _names(path: str | None) -> list[str] | None:
    if path is None:
        return None
    try:
        return [line.strip() for line in Path(path).read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise FileAccessError("E-IO-READ", path, f"cannot be read: {error}") from error


def _show(figures: list[Figure]) -> None:
    columns: tuple[str, ...] = ("metric", "value", "95 % interval")
    rows: list[tuple[str, ...]] = [(each.metric, f"{each.value:.6g}", f"{each.low:.6g} to {each.high:.6g}") for each in figures]
    if figures[0].against is not None:
        columns = (*columns, "other", "difference", "95 % interval", "")
        marks = {True: "better", False: "worse", None: "not certain"}
        rows = [
            (*row, f"{each.against:.6g}", f"{each.difference:+.6g}", f"{each.difference_low:+.6g} to {each.difference_high:+.6g}", marks[each.better])
            for row, each in zip(rows, figures, strict=True)
        ]
    current().table(columns, rows, right=(1, 3, 4))
    current().say(f"{figures[0].samples} samples")

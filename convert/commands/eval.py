"""``eval``: metrics of a network on data or of a language model on a text, and the difference from another model."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...runtime.base.errors import Error, FileAccessError, UsageError
from ...runtime.base.units import counted
from ..cli import option_values, shared_options
from ..cluster import cluster_option
from ..cluster.parallel import pipeline_option
from ..console.output import current
from ..quantize.calibration import image_options

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ...runtime.ir.graph import Graph
    from ..evaluate.dataset import Source
    from ..evaluate.evaluate import Figure
    from ..evaluate.metric import Metric
    from ..evaluate.perplexity import Scores

GROUP = "Run"
EPILOG = """\b
Examples
  candle-convert eval int8.onnx -d images/ --metric top1 --against f32.onnx
  candle-convert eval model.onnx --data test.npz --metric mine.py
  candle-convert eval q4.gguf -d wiki.raw --metric kld --against f16.gguf
"""
TEXT_METRICS = ("ppl", "kld")
PICTURES = (
    *image_options.IMAGES,
    click.option(
        "--classes", metavar="FILE", type=shared_options.PATH, help="Names of the class folders in order, one per line."
    ),
)
TEXTS = (
    click.option(
        "--context",
        type=click.IntRange(1),
        default=512,
        metavar="N",
        help="ppl, kld: tokens per chunk of the text (default 512).",
    ),
    click.option("--chunks", type=click.IntRange(1), metavar="N", help="ppl, kld: only the first N chunks."),
)


@click.command("eval", epilog=EPILOG)
@click.argument("model", metavar="MODEL", type=shared_options.PATH)
@click.option(
    "-d",
    "--data",
    required=True,
    metavar="DATA",
    type=shared_options.PATH,
    help="npz of inputs and labels, folder of npz or images, or text.",
)
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    metavar="NAME",
    help="top1 (default), top5, mse, mae, cosine, map, map50, FILE.py, ppl, kld.",
)
@click.option(
    "--against",
    metavar="OTHER",
    type=shared_options.PATH,
    help="Another model on the same data; shows the difference with its interval.",
)
@click.option("--labels", metavar="NAME", help="Array of the npz, or .npy file, with the labels.")
@click.option("--value", "chosen", metavar="NAME", help="Output that is scored (default: the first).")
@click.option(
    "--batch",
    type=click.IntRange(1),
    metavar="N",
    help="Samples per run (default: the batch size of the model, or 32).",
)
@click.option("--samples", type=click.IntRange(1), metavar="N", help="Only the first N samples.")
@shared_options.THREADS
@shared_options.options(
    PICTURES,
    TEXTS,
    shared_options.DEVICE,
    shared_options.PROGRESS,
    cluster_option.RUNS,
    pipeline_option.PIPELINE,
    shared_options.READING,
)
@cluster_option.connected
def COMMAND(model: str, **values: Any) -> None:  # noqa: N802
    """Score a network on data, or a language model on a text.

    Metrics of networks have 95 % confidence intervals, those of language models standard errors.

    The first axis of every array is the sample axis. A metric FILE.py is Python code that is executed: a function
    metric(outputs, targets) of two dictionaries of arrays that returns one number per sample. No other file is ever
    executed. ppl is the perplexity and kld the KL divergence from the predictions of --against, over the second half of
    each chunk of the text, as in llama-perplexity.
    """
    if set(values["metrics"]) & set(TEXT_METRICS):
        _on_texts(model, values)
    else:
        _on_samples(model, values)


def _on_samples(model: str, values: dict[str, Any]) -> None:
    from ..evaluate import dataset
    from ..evaluate.evaluate import evaluate, figures
    from ..evaluate.metric import metric

    placed = option_values.device(values)
    graph = _open(model, values)
    against = None if values["against"] is None else _open(values["against"], values)
    metrics = [metric(name) for name in values["metrics"] or ("top1",)]
    models = [model, *([values["against"]] if values["against"] else [])]
    if values["cluster"] is None:
        data = dataset.read(_source(values), graph)
        found = evaluate(
            graph, data, metrics, against=against, chosen=values["chosen"], threads=values["threads"], placed=placed
        )
    else:
        found = figures(metrics, _contributions(models, graph, metrics, values, placed))
    _show(found)
    current().emit(
        {
            "inputs": models,
            "data": values["data"],
            "samples": found[0].samples,
            "metrics": [each.to_json() for each in found],
        }
    )


def _contributions(
    models: Sequence[str], graph: Graph, metrics: Sequence[Metric], values: dict[str, Any], placed: dict[str, Any]
) -> Iterator[Any]:
    """The contributions of batches to the metrics, by the workers of a cluster."""
    from ..cluster.network_runs import Evaluation, contributions_on
    from ..evaluate import dataset

    source = dataclasses.replace(_source(values), path=os.path.abspath(values["data"]))
    if source.labels is not None and os.path.exists(source.labels):
        source = dataclasses.replace(source, labels=os.path.abspath(source.labels))
    openings = [cluster_option.opening(path, values) for path in models]
    cluster_option.check(values["cluster"], [*models, values["data"]])
    names = tuple(values["metrics"] or ("top1",))
    other = openings[1] if len(openings) > 1 else None
    work = Evaluation(openings[0], other, source, names, values["chosen"], placed)
    progress = option_values.progress(values)
    progress.phase("scoring")
    progress.start(sum(1 for _ in dataset.readers(source, graph)), unit="batches")
    try:
        yield from contributions_on(values["cluster"], work, metrics, graph, progress.advance)
    finally:
        progress.finish()


def _on_texts(model: str, values: dict[str, Any]) -> None:
    from ..evaluate import text_corpus
    from ..evaluate.perplexity import score
    from ..load.load_model import load_language_model

    wanted, against = set(values["metrics"]), values["against"]
    if wanted - set(TEXT_METRICS):
        raise UsageError(
            "E-OPTION", None, f"{', '.join(sorted(wanted - set(TEXT_METRICS)))} and text metrics cannot be combined"
        )
    if "kld" in wanted and against is None:
        why = "kld needs another model"
        raise UsageError("E-OPTION", None, why, hint="Pass --against MODEL, usually the model before quantization")
    placed = option_values.device(values)
    stages = pipeline_option.stages(values)

    def loaded(path: str) -> Any:
        if stages is not None:
            return pipeline_option.pipelined(path, values, stages)
        return load_language_model(option_values.open_input(path, values, whole=True), values["threads"], **placed)

    language, other = loaded(model), None if against is None else loaded(against)
    cut = text_corpus.pieces(language.tokenizer, [values["data"]], values["context"], values["chunks"])
    if values["cluster"] is None or stages is not None:
        scores = score(language, cut, other, option_values.progress(values))
    else:
        scores = _by_workers(model, cut, values, placed)
    found = scores.estimates()
    current().table(
        ("metric", "value", "± error"),
        [(each.metric, f"{each.value:.6g}", _error(each.error)) for each in found],
        right=(1, 2),
    )
    current().say(f"{counted(scores.count, 'token')} scored, of {counted(len(cut), 'piece')} of {values['context']}")
    said = {
        "tokens": scores.count,
        "pieces": len(cut),
        "context": values["context"],
        "metrics": [each.to_json() for each in found],
    }
    current().emit({"inputs": [model, *([against] if against else [])], "data": values["data"], **said})


def _by_workers(model: str, cut: Sequence[Any], values: dict[str, Any], placed: dict[str, Any]) -> Scores:
    """The scores of the pieces of a text, by the workers of a cluster."""
    from ..cluster.text_pieces import Scoring, scores_on

    paths = [model, *([values["against"]] if values["against"] else [])]
    openings = [cluster_option.opening(path, values) for path in paths]
    cluster_option.check(values["cluster"], paths)
    work = Scoring(openings[0], openings[1] if values["against"] else None, placed)
    return scores_on(values["cluster"], work, cut, option_values.progress(values))


def _error(error: float | None) -> str:
    return "" if error is None else f"{error:.3g}"


def _open(path: str, values: dict[str, Any]) -> Graph:
    return option_values.open_network(path, values, lambda graph: _needs_metric(path, graph, values["data"]))


def _needs_metric(path: str, graph: Graph, data: str) -> UsageError | None:
    """The error for a language model, whose metrics have to be named; None for other weights."""
    from ...runtime.contract.architecture import TEXT_GENERATION
    from ..load.bind import bind_model
    from ..load.canonical_names import canonical_names

    task: str | None = None
    with contextlib.suppress(Error, KeyError):
        task = bind_model(canonical_names(graph, text_only=True)).task.name
    if task != TEXT_GENERATION:
        return None
    words = shlex.join(["candle-convert", "eval", path, "-d", data, "--metric", "ppl"])
    return UsageError("E-EVAL-METRIC", path, "is a language model, which is scored on a text", hint=f"Use {words}")


def _source(values: dict[str, Any]) -> Source:
    from ..evaluate.dataset import Source

    look = image_options.look(values)
    return Source(values["data"], values["labels"], _names(values["classes"]), values["batch"], values["samples"], look)


def _names(path: str | None) -> list[str] | None:
    if path is None:
        return None
    try:
        return [line.strip() for line in Path(path).read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise FileAccessError("E-IO-READ", path, f"cannot be read: {error}") from error


def _show(figures: list[Figure]) -> None:
    columns: tuple[str, ...] = ("metric", "value", "95 % interval")
    rows: list[tuple[str, ...]] = [
        (each.metric, f"{each.value:.6g}", f"{each.low:.6g} to {each.high:.6g}") for each in figures
    ]
    if figures[0].against is not None:
        columns = (*columns, "other", "difference", "95 % interval", "")
        marks = {True: "better", False: "worse", None: "not certain"}
        rows = [
            (
                *row,
                f"{each.against:.6g}",
                f"{each.difference:+.6g}",
                f"{each.difference_low:+.6g} to {each.difference_high:+.6g}",
                marks[each.better],
            )
            for row, each in zip(rows, figures, strict=True)
        ]
    current().table(columns, rows, right=(1, 3, 4))
    current().say(counted(figures[0].samples, "sample"))

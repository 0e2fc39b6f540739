"""``embed``: vectors of texts, pictures and sounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ...runtime.base.errors import UsageError
from ...runtime.base.units import counted
from ..cli import option_values, shared_options
from ..cluster import cluster_option
from ..console.output import current, notes_json
from ..console.status_line import busy

if TYPE_CHECKING:
    import numpy as np

GROUP = "Run"
EPILOG = """\b
Examples
  candle-convert embed model_dir -f sentences.txt -o vectors.npy --dim 256
  candle-convert embed model.gguf "a cat" "a dog" "a stock" --similarity
  candle-convert embed clip_dir photos/ "a cat" "a dog" --similarity
"""
SHOWN = 20
"""Inputs in a table of similarities."""
OPTIONS = ("batch", "normalize", "prompt_name", "pooling", "dim", "preprocessor")
"""Options of vectors; what a model takes decides which of them it may have."""


@click.command("embed", epilog=EPILOG)
@click.argument("model", metavar="MODEL", type=shared_options.PATH)
@click.argument("inputs", metavar="[INPUT ...]", nargs=-1)
@click.option(
    "-f", "--file", metavar="FILE", type=shared_options.PATH, help="File with one input a line; - reads standard input."
)
@click.option(
    "-o",
    "--output",
    "--outfile",
    "output",
    metavar="OUT",
    type=shared_options.PATH,
    help="Vectors as .npy, .npz, .json or .safetensors.",
)
@click.option("--similarity", is_flag=True, help="Print the cosine of every two inputs.")
@click.option("--batch", type=click.IntRange(1), metavar="N", help="Batch size (default: 32 texts, 8 images).")
@click.option("--prompt-name", metavar="NAME", help="Which of the model's prompts goes before each text.")
@click.option("--pooling", metavar="MODE", help="cls, mean, max, mean_sqrt_len_tokens, weightedmean or lasttoken.")
@click.option(
    "--dim",
    type=click.IntRange(1),
    metavar="N",
    help="Dimensions to keep of each vector (Matryoshka; default: as the model says).",
)
@click.option(
    "--normalize/--no-normalize", default=None, help="Whether vectors have length 1 (default: as the model says)."
)
@shared_options.PREPROCESSOR
@click.option("--force", is_flag=True, help="Replace an existing output.")
@cluster_option.running
def COMMAND(model: str, inputs: tuple[str, ...], **values: Any) -> int:  # noqa: N802
    """Compute vectors of texts, pictures or sounds.

    Each INPUT, and each line of FILE, is a text; for a model of pictures or sounds a file, a folder or a pattern of
    names; for a model of both (CLIP) a picture where there is such a file, else a text. Each has one vector. Pooling,
    further layers and normalization are those that the model's files state: modules.json and the folders that it
    names, or the pooling type of a GGUF file. ColPali has a vector of each token of a page or a query. MODEL is a
    Hugging Face directory, a GGUF file, or an ONNX file with its tokenizer in the same directory.

    Without -o, prints the vectors as JSON, one a line. A damaged picture or sound among several has no vector: it gets
    a line on standard error, and the exit code is that of its error at the end.
    """
    import numpy as np

    from ...models.postprocess.finite_results import finite
    from ..console.atomic_replace import refuse_existing
    from ..inputs.input_kind import kind_of
    from ..run.counter import Counter
    from ..run.readable_files import over_rows
    from ..run.text_lines import cut_texts, texts_of
    from ..run.vectors import check_suffix, write_vectors

    out, output = current(), values["output"]
    given = texts_of(inputs, values["file"], "INPUT")
    if output is not None:
        check_suffix(output)
        refuse_existing(output, force=values["force"])
    found = cluster_option.load_for("embed", model, values)
    kind = kind_of(found)
    given = given if kind.files is None else kind.files(given)
    if output is not None:
        check_suffix(output, matrices=kind.matrices)
    if values["similarity"] and kind.matrices:
        why = f"--similarity compares vectors, and {kind.several} have one for each token"
        raise UsageError("E-OPTION", None, why, hint="Rank pages with candle-convert rerank")
    if values["similarity"] and len(given) > SHOWN and not out.json:
        raise UsageError("E-OPTION", None, f"--similarity shows {SHOWN} inputs at most", found=len(given))
    asked = {name: values[name] for name in OPTIONS if values[name] is not None}
    misplaced = next((name for name in asked if name not in kind.embed_options), None)
    if misplaced is not None:
        why = f"vectors of {kind.several} have no option --{misplaced.replace('_', '-')}"
        raise UsageError("E-OPTION", None, why)
    options = kind.read_options(asked)
    counter = Counter(option_values.progress(values), "embedding", kind.several)
    failed: dict[str, Any] = {}
    short: list[dict[str, Any]] = []
    code = 0
    with cut_texts() as notes:
        if kind.files is None:
            vectors = found.embed(given, **options, progress=counter)
        else:
            batch = options.get("batch", kind.batch)
            readable = over_rows(found, "embed", given, batch, options, kind.input, counter)
            failed, code = readable.errors_json(given), readable.exit_code
            short = failed.pop("warnings", [])
            given = [given[row] for row in readable.rows]
            vectors = readable.results if kind.matrices else np.array(readable.results, np.float32)
    busy().stop()
    out.warn(notes)
    if not given:
        out.emit({"inputs": [model], "task": found.task, "count": 0, **failed, "warnings": short}, ok=False)
        return code
    finite(vectors if kind.matrices else [vectors], ["the vectors"], masked=False)
    if output is not None:
        write_vectors(output, vectors, given, force=values["force"])
    width = vectors[0].shape[-1]
    table = _similarity(given, vectors, kind.one) if values["similarity"] else None
    if output is None and table is None and not out.json:
        for item in vectors:
            out.content(_shown(item))
    if output is not None:
        what = counted(len(given), "matrix", "matrices") if kind.matrices else counted(len(given), "vector")
        out.say(f"✓ {output}  {what} of {width:,}")
    emitted = (
        {"vectors": [vector.tolist() for vector in vectors]} if output is None else {"outputs": [{"path": output}]}
    )
    cosines = {} if table is None else {"similarity": table.tolist()}
    facts = {"inputs": [model], "task": found.task, "count": len(given), "width": width}
    out.emit({**facts, **emitted, **cosines, **failed, "warnings": [*short, *notes_json(notes)]}, ok=not failed)
    return code


def _shown(vector: np.ndarray) -> str:
    """A vector or a matrix as JSON."""
    return f"[{', '.join(_shown(item) if item.ndim else f'{item:.7g}' for item in vector)}]"


def _similarity(given: list[str], vectors: np.ndarray, what: str) -> np.ndarray:
    """The cosine of every two inputs, which is shown."""
    from ...models.pipelines.similarity import similarities

    found = similarities(vectors, vectors)
    columns = ("", what, *map(str, range(1, len(given) + 1)))
    rows = [
        (number, text, *(f"{cosine:.3f}" for cosine in row))
        for number, (text, row) in enumerate(zip(given, found, strict=True), 1)
    ]
    current().table(columns, rows, right=(0, *range(2, len(columns))))
    return found

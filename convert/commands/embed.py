"""``embed``: vectors of texts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ...runtime.base.errors import UsageError
from ...runtime.base.units import counted
from ..cli import shared_options
from ..console.output import current, notes_json
from ..console.status_line import busy

if TYPE_CHECKING:
    import numpy as np

EPILOG = """\b
Examples
  candle-convert embed model_dir -f sentences.txt -o vectors.npy
  candle-convert embed model.gguf "a cat" "a dog" "a stock" --similarity
  candle-convert embed model_dir -f - -o queries.json --prompt-name query
"""
SHOWN = 20
"""Texts in a table of similarities."""


@click.command("embed", epilog=EPILOG)
@click.argument("model", metavar="MODEL", type=shared_options.PATH)
@click.argument("texts", metavar="[TEXT ...]", nargs=-1)
@click.option(
    "-f", "--file", metavar="FILE", type=shared_options.PATH, help="File with one text a line; - reads standard input."
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
@click.option("--similarity", is_flag=True, help="Print the cosine of every two texts.")
@click.option("--batch", type=click.IntRange(1), default=32, metavar="N", help="Texts of one run (default 32).")
@click.option("--prompt-name", metavar="NAME", help="Which of the model's prompts goes before each text.")
@click.option("--pooling", metavar="MODE", help="cls, mean, max, mean_sqrt_len_tokens, weightedmean or lasttoken.")
@click.option(
    "--normalize/--no-normalize", default=None, help="Whether vectors have length 1 (default: as the model says)."
)
@click.option("--force", is_flag=True, help="Replace an existing output.")
@shared_options.options(shared_options.RUNNING, shared_options.PROGRESS, shared_options.DEVICE, shared_options.READING)
def COMMAND(model: str, texts: tuple[str, ...], **values: Any) -> None:  # noqa: N802
    """Compute vectors of texts.

    Each TEXT, and each line of FILE, has one. Pooling, further layers and normalization are those that the model's
    files state: modules.json and the folders that it names, or the pooling type of a GGUF file. MODEL is a Hugging
    Face directory, a GGUF file, or an ONNX file with its tokenizer in the same directory.

    Without -o, prints the vectors as JSON, one a line.
    """
    from ..console.atomic_replace import refuse_existing
    from ..run.text_lines import Counter, cut_texts, texts_of
    from ..run.vectors import check_suffix, write_vectors

    out, output = current(), values["output"]
    given = texts_of(texts, values["file"])
    if output is not None:
        check_suffix(output)
        refuse_existing(output, force=values["force"])
    if values["similarity"] and len(given) > SHOWN and not out.json:
        raise UsageError("E-OPTION", None, f"--similarity shows {SHOWN} texts at most", found=len(given))
    found = shared_options.load_for("embed", model, values)
    with cut_texts() as notes:
        vectors = found.embed(
            given,
            values["batch"],
            prompt_name=values["prompt_name"],
            pooling=values["pooling"],
            normalize=values["normalize"],
            progress=Counter(shared_options.progress(values), "embedding"),
        )
    busy().stop()
    out.warn(notes)
    if output is not None:
        write_vectors(output, vectors, given, force=values["force"])
    table = _similarity(given, vectors) if values["similarity"] else None
    if output is None and table is None and not out.json:
        for vector in vectors:
            out.content(f"[{', '.join(f'{number:.7g}' for number in vector)}]")
    if output is not None:
        out.say(f"✓ {output}  {counted(len(given), 'vector')} of {vectors.shape[1]:,}")
    emitted = {"vectors": vectors.tolist()} if output is None else {"outputs": [{"path": output}]}
    cosines = {} if table is None else {"similarity": table.tolist()}
    facts = {"inputs": [model], "task": found.task, "count": len(given), "width": vectors.shape[1]}
    out.emit({**facts, **emitted, **cosines, "warnings": notes_json(notes)})


def _similarity(texts: list[str], vectors: np.ndarray) -> np.ndarray:
    """The cosine of every two texts, which is shown."""
    from ...models.pipelines.similarity import similarities

    found = similarities(vectors, vectors)
    columns = ("", "text", *map(str, range(1, len(texts) + 1)))
    rows = [
        (number, text, *(f"{cosine:.3f}" for cosine in row))
        for number, (text, row) in enumerate(zip(texts, found, strict=True), 1)
    ]
    current().table(columns, rows, right=(0, *range(2, len(columns))))
    return found

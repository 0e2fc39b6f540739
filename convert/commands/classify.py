"""``classify``: classifies images by their nearest labelled examples (k-NN)."""

from __future__ import annotations

from typing import Any

import click

from ...runtime.base.errors import UsageError
from ..cli import option_values, shared_options
from ..console.output import current
from ..console.status_line import busy

GROUP = "Run"
EPILOG = """\b
Examples
  candle-convert classify dinov2_dir new.jpg --against labeled/
  candle-convert classify vit_dir 'new/*.png' --against labeled/ --neighbors 1
  candle-convert classify siglip_dir photos/ --against labeled/ --json
"""


@click.command("classify", epilog=EPILOG)
@click.argument("model", metavar="MODEL", type=shared_options.PATH)
@click.argument("inputs", metavar="IMAGE...", nargs=-1, required=True)
@click.option(
    "--against",
    required=True,
    metavar="DIR",
    type=shared_options.PATH,
    help="Labelled examples: one folder of images per label.",
)
@click.option(
    "--neighbors",
    type=click.IntRange(1),
    default=5,
    metavar="N",
    help="Number of nearest neighbours that vote (default 5).",
)
@click.option("--batch", type=click.IntRange(1), metavar="N", help="Batch size (default 8).")
@shared_options.PREPROCESSOR
@shared_options.options(shared_options.RUNNING, shared_options.PROGRESS, shared_options.DEVICE, shared_options.READING)
def COMMAND(model: str, inputs: tuple[str, ...], **values: Any) -> int:  # noqa: N802
    """Classify images by their nearest labelled examples (k-NN).

    MODEL embeds images. The nearest images in --against vote for the names of their folders, weighted by cosine
    similarity; nothing is trained. IMAGE is a file, a folder or a glob pattern.

    A damaged file is reported on standard error and skipped; the exit code is then that of its error.
    """
    import numpy as np

    from ...models.pipelines.image.nearest_neighbors import vote
    from ...models.postprocess.finite_results import finite
    from ..inputs.pictures import BATCH
    from ..pictures.picture_inputs import pictures_by_folder, pictures_of, read_preparation
    from ..run.counter import Counter
    from ..run.readable_files import over_readable

    given, labeled = pictures_of(inputs), pictures_by_folder(values["against"])
    found = option_values.load_for("embed", model, values)
    options = {"batch": values["batch"]} if values["batch"] is not None else {}
    if values["preprocessor"] is not None:
        options["preparation"] = read_preparation(values["preprocessor"])
    counter = Counter(option_values.progress(values), "embedding", "pictures")
    paths, labels = zip(*labeled, strict=True)
    pictures = [*paths, *given]
    readable = over_readable(pictures, options.get("batch", BATCH), lambda some: found.embed(some, **options), counter)
    busy().stop()
    known = [row for row in readable.rows if row < len(paths)]
    if not known:
        raise UsageError("E-PICTURE-NONE", values["against"], "none of its pictures can be read")
    kept = [pictures[row] for row in readable.rows]
    given, paths, labels = kept[len(known) :], tuple(kept[: len(known)]), tuple(labels[row] for row in known)
    (vectors,) = finite([np.array(readable.results, np.float32)], ["the vectors"], masked=False)
    votes = vote(vectors[len(known) :], vectors[: len(known)], labels, values["neighbors"])
    results = [
        {
            "input": picture,
            "label": each.label,
            "score": each.score,
            "cosine": each.cosine,
            "nearest": paths[each.nearest],
        }
        for picture, each in zip(given, votes, strict=True)
    ]
    rows = [
        (result["input"], result["label"], f"{result['score']:.3f}", f"{result['cosine']:.3f}", result["nearest"])
        for result in results
    ]
    if rows:
        current().table(("picture", "label", "score", "cosine", "nearest"), rows, right=(2, 3))
    facts = {"inputs": [model], "against": values["against"], "results": results, "warnings": []}
    current().emit({**facts, **readable.errors_json(pictures)}, ok=not readable.errors)
    return readable.exit_code

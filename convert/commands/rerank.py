"""``rerank``: documents by how well they answer a query."""

from __future__ import annotations

from typing import Any

import click

from ..cli import shared_options
from ..console.output import current, notes_json
from ..console.status_line import busy

EPILOG = """\b
Examples
  candle-convert rerank model_dir --query "How do cats sleep?" -f docs.txt
  candle-convert rerank model.gguf --query "tax law" "Cats nap." "Taxes rise."
  candle-convert rerank model_dir --query cats -f docs.txt --top 3 --json
"""


@click.command("rerank", epilog=EPILOG)
@click.argument("model", metavar="MODEL", type=shared_options.PATH)
@click.argument("documents", metavar="[DOCUMENT ...]", nargs=-1)
@click.option("--query", required=True, metavar="TEXT", help="What the documents are compared with.")
@click.option(
    "-f",
    "--file",
    metavar="FILE",
    type=shared_options.PATH,
    help="File with one document a line; - reads standard input.",
)
@click.option(
    "--instruction", metavar="TEXT", help="What makes a document fit, for language models that answer yes or no."
)
@click.option("--top", type=click.IntRange(1), metavar="N", help="Show the N best documents (default: all).")
@click.option("--batch", type=click.IntRange(1), default=32, metavar="N", help="Documents of one run (default 32).")
@shared_options.options(shared_options.RUNNING, shared_options.PROGRESS, shared_options.DEVICE, shared_options.READING)
def COMMAND(model: str, documents: tuple[str, ...], **values: Any) -> None:  # noqa: N802
    """Order documents by how well they answer a query.

    The best is first. A text classifier with one label scores the pairs of query and document. A language model
    that was trained for it (Qwen3-Reranker) is asked whether each document fits, and its answers yes and no are
    compared; with --instruction any language model with Qwen's chat tokens is. Another model compares vectors, with
    its prompts for queries and documents. The first column is the number of the document, from 1.
    """
    import numpy as np

    from ...models.postprocess.finite_results import finite
    from ...runtime.contract.architecture import TEXT_RANKING
    from ..run.counter import Counter
    from ..run.text_lines import cut_texts, texts_of

    given = texts_of(documents, values["file"], "DOCUMENT")
    instruction = values["instruction"]
    found = shared_options.load_for("rerank", model, values, None if instruction is None else TEXT_RANKING)
    with cut_texts() as notes:
        ranked = found.rerank(
            values["query"],
            given,
            top=values["top"],
            batch=values["batch"],
            progress=Counter(shared_options.progress(values), "ranking"),
            instruction=instruction,
        )
    busy().stop()
    out = current()
    out.warn(notes)
    finite([np.array([each["score"] for each in ranked])], ["the scores"], masked=False)
    rows = [(each["index"] + 1, f"{each['score']:.4f}", each["text"]) for each in ranked]
    out.table(("", "score", "document"), rows, right=(0, 1))
    out.emit({"inputs": [model], "task": found.task, "query": values["query"], "documents": ranked,
              "warnings": notes_json(notes)})  # fmt: skip

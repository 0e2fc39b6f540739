"""``rerank``: reranks documents by relevance to a query."""

from __future__ import annotations

from typing import Any

import click

from ..cli import option_values, shared_options
from ..console.output import current, notes_json
from ..console.status_line import busy

GROUP = "Run"
EPILOG = """\b
Examples
  candle-convert rerank model_dir --query "How do cats sleep?" -f docs.txt
  candle-convert rerank model.gguf --query "tax law" "Cats nap." "Taxes rise."
  candle-convert rerank colpali_dir --query "net income" page1.png page2.png
"""


@click.command("rerank", epilog=EPILOG)
@click.argument("model", metavar="MODEL", type=shared_options.PATH)
@click.argument("documents", metavar="[DOCUMENT ...]", nargs=-1)
@click.option("--query", required=True, metavar="TEXT", help="Search query.")
@click.option(
    "-f",
    "--file",
    metavar="FILE",
    type=shared_options.PATH,
    help="File with one document per line; - reads standard input.",
)
@click.option("--instruction", metavar="TEXT", help="Definition of relevance for rerankers that are language models.")
@click.option("--top", type=click.IntRange(1), metavar="N", help="Number of documents to print (default: all).")
@click.option("--batch", type=click.IntRange(1), default=32, metavar="N", help="Batch size (default 32).")
@shared_options.options(shared_options.RUNNING, shared_options.PROGRESS, shared_options.DEVICE, shared_options.READING)
def COMMAND(model: str, documents: tuple[str, ...], **values: Any) -> None:  # noqa: N802
    """Rerank documents by relevance to a query.

    The most relevant document is first; the first column is its number in the input, from 1. A cross-encoder (text
    classifier with one label) scores pairs of query and document. Qwen3-Reranker, or with --instruction any language
    model with Qwen's chat tokens, scores by the logits of "yes" and "no". An embedding model scores by similarity, with
    its prompts for queries and documents. ColPali's documents are pages, files of pictures, which it scores by MaxSim.
    """
    import numpy as np

    from ...models.postprocess.finite_results import finite
    from ...runtime.contract.architecture import TEXT_RANKING
    from ..run.counter import Counter
    from ..run.text_lines import cut_texts, texts_of

    given = texts_of(documents, values["file"], "DOCUMENT")
    instruction = values["instruction"]
    found = option_values.load_for("rerank", model, values, None if instruction is None else TEXT_RANKING)
    with cut_texts() as notes:
        ranked = found.rerank(
            values["query"],
            given,
            top=values["top"],
            batch=values["batch"],
            progress=Counter(option_values.progress(values), "ranking"),
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

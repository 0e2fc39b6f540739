"""Documents by relevance to a query: /v1/rerank of Cohere and Jina, and /rerank of Text Embeddings Inference."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import numpy as np
from starlette.responses import JSONResponse, Response

from ....models.postprocess.finite_results import finite
from ..call import Call
from ..endpoint import MODEL, Endpoint
from ..requests.media import model_inputs
from ..requests.request_fields import Either, Field, Flag, Many, Record, Text, integer
from ..served_model import ServedModel
from ..text_lengths import counted_tokens

RERANK = "rerank"
MAX_DOCUMENTS = 2048
COHERE = Record(
    {
        "model": MODEL,
        "query": Field(Text(), required=True, help="Search query."),
        "documents": Field(
            Many(Either((Text(), Record({"text": Field(Text(), required=True)}))), 1, MAX_DOCUMENTS),
            required=True,
            help="Texts, or objects with text; data: URLs of pages for ColPali.",
        ),
        "top_n": Field(integer(1), help="Number of results (default: all)."),
        "return_documents": Field(Flag(), default=False, help="Whether results hold the documents."),
    },
    unused=("max_chunks_per_doc", "max_tokens_per_doc"),
)
TEI = Record(
    {
        "model": MODEL,
        "query": Field(Text(), required=True, help="Search query."),
        "texts": Field(Many(Text(), 1, MAX_DOCUMENTS), required=True, help="Documents."),
        "return_text": Field(Flag(), default=False, help="Whether results hold the documents."),
        "truncate": Field(Flag(), default=False, help="Whether documents that are too long are cut."),
    },
    unused=("raw_scores", "truncation_direction"),
)


async def cohere(call: Call) -> Response:
    """Cohere's object, with Jina's count of tokens."""
    values, model = call.values, call.model(RERANK)
    documents = [each if isinstance(each, str) else each["text"] for each in values["documents"]]
    tokens = await counted_tokens(call, model, [values["query"], *documents], cut=True, name="documents")
    ranked = await _ranked(call, model, documents, "documents")
    results = [
        {
            "index": each["index"],
            "relevance_score": each["score"],
            **({"document": {"text": documents[each["index"]]}} if values["return_documents"] else {}),
        }
        for each in ranked[: values["top_n"]]
    ]
    usage = {"total_tokens": tokens}
    return JSONResponse({"id": uuid.uuid4().hex, "model": model.name, "results": results, "usage": usage})


async def tei(call: Call) -> Response:
    """A list, the most relevant document first."""
    values, model = call.values, call.model(RERANK)
    await counted_tokens(call, model, [values["query"], *values["texts"]], cut=values["truncate"], name="texts")
    ranked = await _ranked(call, model, values["texts"], "texts")
    texts = values["texts"] if values["return_text"] else None
    return JSONResponse([
        {"index": each["index"], "score": each["score"], **({"text": texts[each["index"]]} if texts else {})}
        for each in ranked
    ])  # fmt: skip


async def _ranked(call: Call, model: ServedModel, documents: list[str], name: str) -> list[dict[str, Any]]:
    query = call.values["query"]
    items = model_inputs(documents, "pictures" if model.takes == "pages_and_queries" else "texts", name)

    def compute(some: list[Any], check: Callable[[], None]) -> list[Any]:
        found = model.model.rerank(query, some[0], progress=lambda done, total: check())
        finite([np.array([each["score"] for each in found])], ["the scores"], masked=False)
        return [found]

    (found,) = await call.computed(None, [items], compute)
    return found


ENDPOINTS = (
    Endpoint("/v1/rerank", cohere, "Rank documents, as Cohere and Jina answer.", RERANK, COHERE),
    Endpoint("/rerank", tei, "Rank documents, as Text Embeddings Inference answers.", RERANK, TEI),
)

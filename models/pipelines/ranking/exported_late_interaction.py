"""Late interaction models in ONNX files: graphs as of multimodal language models, with vectors in place of logits."""

from __future__ import annotations

import functools

from ....runtime.contract.graph_files import GraphFiles, Signature
from ..multimodal.exported_multimodal import COUNTED, EMBEDS, IDS, PIXELS, run_exported
from .late_interaction_tasks import DOCUMENT_RETRIEVAL, LateInteractionRunner
from .retrieval_prompts import EMBEDDINGS

GRAPH_FILES = GraphFiles(
    DOCUMENT_RETRIEVAL,
    {
        "vision_encoder": Signature(PIXELS, frozenset()),
        "embed_tokens": Signature(IDS, EMBEDS),
        "decoder_model_merged": Signature(EMBEDS, frozenset({EMBEDDINGS}), COUNTED, prefixes=("past_",)),
    },
    functools.partial(run_exported, kind=LateInteractionRunner, task=DOCUMENT_RETRIEVAL),
)

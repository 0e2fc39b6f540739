"""Language models that hear, in ONNX files as Transformers.js has them."""

from __future__ import annotations

import functools

from ....runtime.contract.graph_files import GraphFiles, Signature
from ..multimodal.exported_multimodal import COUNTED, EMBEDS, IDS, run_exported
from ..multimodal.multimodal_tasks import AUDIO_TEXT, MultimodalRunner

GRAPH_FILES = GraphFiles(
    AUDIO_TEXT,
    {
        "audio_encoder": Signature(frozenset({"audio_values"}), frozenset({"audio_features"})),
        "embed_tokens": Signature(IDS, EMBEDS),
        "decoder_model_merged": Signature(EMBEDS, frozenset({"logits"}), COUNTED, ("past_",)),
    },
    functools.partial(run_exported, kind=MultimodalRunner, task=AUDIO_TEXT),
)

"""The task of late interaction models (ColBERT; Khattab and Zaharia 2020, arXiv:2004.12832): a vector of each token of
a query and of a page, from the hidden states of a multimodal language model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ....runtime.base.dataclass import dataclass
from ....runtime.contract.architecture import FEATURE_EXTRACTION, Config, GraphBuilder, RunOptions, Task
from ....runtime.contract.part_graph import add_part
from ....runtime.ir.graph import Graph
from ....runtime.tensor.stored_tensor import StoredTensor
from ...generation.decoder_tasks import EMBED_TOKENS, FROM_EMBEDS, HEAD
from ...layers.linear import linear
from ...layers.net import Net
from ..multimodal.multimodal_tasks import TEXT, text_graph
from ..multimodal.prompts.prompt_rules import DECODER_MODEL, PromptRules
from .retrieval_prompts import EMBEDDINGS, RetrievalPrompts

if TYPE_CHECKING:
    from .late_interaction_model import LateInteractionModel

DOCUMENT_RETRIEVAL = "visual-document-retrieval"
"""Hugging Face's name of the task."""
PROJECTION = "embedding"
"""The weight that makes vectors of hidden states."""


def _token_vectors(graph: Graph, config: Config, weights: Mapping[str, StoredTensor], *, fixed: bool) -> None:
    """``embeddings`` [batch, length, width] of length 1, of ``inputs_embeds``."""
    net = Net(graph, config, weights)
    outputs = add_part(graph, config, weights, TEXT, task=FEATURE_EXTRACTION, which=FROM_EMBEDS, fixed=fixed)
    vectors = linear(net, outputs.pop("last_hidden_state"), PROJECTION)
    net.output(EMBEDDINGS, net.LpNormalization(vectors, axis=-1, p=2))
    for name, state in outputs.items():
        net.output(name, state)


def late_interaction_task(encoders: Mapping[str, GraphBuilder], rules: PromptRules, prompts: RetrievalPrompts) -> Task:
    """The task of a family whose weight ``embedding`` makes vectors of hidden states.

    Args:
        encoders: a graph for each of the modalities of `rules`, by its name.
    """
    return Task(
        DOCUMENT_RETRIEVAL,
        {**encoders, EMBED_TOKENS: text_graph(EMBED_TOKENS), DECODER_MODEL: _token_vectors},
        LateInteractionRunner(rules, prompts),
        unneeded=tuple(f"{TEXT}.{name}" for name in HEAD),
    )


@dataclass(frozen=True)
class LateInteractionRunner:
    """Makes the runnable object of the graphs of a family."""

    rules: PromptRules
    prompts: RetrievalPrompts

    def __call__(self, graphs: Mapping[str, Graph], options: RunOptions) -> LateInteractionModel:
        """The graphs as one model."""
        from .late_interaction_model import LateInteractionModel

        return LateInteractionModel(graphs, options, self.rules, self.prompts)

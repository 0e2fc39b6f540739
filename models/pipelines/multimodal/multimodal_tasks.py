"""The task of multimodal language models: encoders, the embeddings of tokens and a decoder of embeddings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ....runtime.base.dataclass import dataclass
from ....runtime.contract.architecture import FEATURE_EXTRACTION, MODEL, Config, GraphBuilder, RunOptions, Task
from ....runtime.contract.part_graph import add_part
from ....runtime.ir.graph import Graph
from ....runtime.tensor.stored_tensor import StoredTensor
from ...generation.decoder_tasks import EMBED_TOKENS, FROM_EMBEDS, run_decoder
from ...layers.net import Net
from .prompts.prompt_rules import DECODER_MODEL, PromptRules

if TYPE_CHECKING:
    from .multimodal_language_model import MultimodalLanguageModel

TEXT = "text"
"""The name of the language model among the parts."""
IMAGE_TEXT, AUDIO_TEXT = "image-text-to-text", "audio-text-to-text"
"""Hugging Face's names of the tasks."""


CLASS = "ForConditionalGeneration"
"""Suffix of the names of transformers' classes that write text."""


def writes_text(source: Mapping[str, Any]) -> bool:
    """Whether a config.json is of a model that writes text; of others, such as classifiers, only the text part is
    known."""
    classes = source.get("architectures")
    return not isinstance(classes, list) or not classes or str(classes[0]).endswith(CLASS)


def text_graph(which: str, task: str | None = None) -> GraphBuilder:
    """The builder of a graph of the language model for a task of its own: its outputs are those of the whole."""

    def graph(graph: Graph, config: Config, weights: Mapping[str, StoredTensor], *, fixed: bool) -> None:
        net = Net(graph, config, weights)
        for name, value in add_part(graph, config, weights, TEXT, task=task, which=which, fixed=fixed).items():
            net.output(name, value)

    return graph


def multimodal_task(encoders: Mapping[str, GraphBuilder], rules: PromptRules, name: str = IMAGE_TEXT) -> Task:
    """The task of a family.

    Args:
        encoders: a graph for each of the modalities of `rules`, by its name.
        name: Hugging Face's name of the task.
    """
    return Task(
        name,
        {**encoders, EMBED_TOKENS: text_graph(EMBED_TOKENS), DECODER_MODEL: text_graph(FROM_EMBEDS)},
        MultimodalRunner(rules),
        aliases=("text-generation", "lm"),
        variants={MODEL: text_graph(MODEL)},
    )


TEXT_FEATURES = Task(
    FEATURE_EXTRACTION, {MODEL: text_graph(MODEL, FEATURE_EXTRACTION)}, run_decoder, aliases=("hidden",)
)
"""The task of the language model alone that gives hidden states of texts."""


@dataclass(frozen=True)
class MultimodalRunner:
    """Makes the runnable object of the graphs of a family with `rules`."""

    rules: PromptRules

    def __call__(self, graphs: Mapping[str, Graph], options: RunOptions) -> MultimodalLanguageModel:
        """The graphs as one model."""
        from .multimodal_language_model import MultimodalLanguageModel

        return MultimodalLanguageModel(graphs, options, self.rules)

"""Tasks of decoders: text generation, text classification and feature extraction with one graph."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ...runtime.contract.architecture import (
    FEATURE_EXTRACTION,
    MODEL,
    TEXT_CLASSIFICATION,
    TEXT_GENERATION,
    TEXT_RANKING,
    Config,
    FileNames,
    GraphBuilder,
    RunOptions,
    Task,
    Weight,
)
from ...runtime.ir.graph import Dim, Graph, Value
from ...runtime.tensor.stored_tensor import StoredTensor
from ..layers.decoder import EMBEDS, Decoder

if TYPE_CHECKING:
    from .language_model import LanguageModel

FROM_EMBEDS, EMBED_TOKENS = "from_embeds", "embed_tokens"
"""Names of variants: the decoder of ``inputs_embeds``, and the embeddings of ids."""
HEAD = ("head.",)
"""Weights that predict tokens."""


class Complete(Exception):
    """The graph has all its outputs: the remaining layers are not added."""


class TokenEmbeddings(Decoder):
    """A net that ends with the embeddings of ``input_ids``: the output ``inputs_embeds`` [batch, length, hidden]."""

    def begin(self, embed: str = "embed", scale: float | None = None) -> Value:
        """Declare the inputs and the output; raises `Complete`."""
        self.output(EMBEDS, super().begin(embed, scale))
        raise Complete

    def declare(self, shape: tuple[Dim, ...]) -> None:
        """Declare the input; `shape` as of `Decoder`."""
        self.ids = self.input("input_ids", "i64", shape)


def classifier(width: str, gguf: FileNames = ()) -> tuple[Weight, ...]:
    """The head of a text classifier, which all families of transformers call the same.

    Args:
        gguf: names of its weight in GGUF files.
    """
    return (
        Weight("classifier.weight", "score.weight", gguf, shape=("labels", width)),
        Weight("classifier.bias", "score.bias", optional=True),
    )


def decoder_tasks(build: Callable[[Decoder], None], width: str = "hidden") -> tuple[Task, ...]:
    """The tasks of a decoder whose layers `build` adds; `width` is the parameter that holds the elements of its last
    hidden state. Multimodal models use the variants `FROM_EMBEDS` and `EMBED_TOKENS`."""

    def builder(task: str, kind: type[Decoder] = Decoder, embeds: bool = False) -> GraphBuilder:
        def add(graph: Graph, config: Config, weights: Mapping[str, StoredTensor], *, fixed: bool) -> None:
            with contextlib.suppress(Complete):
                build(kind(graph, config, weights, task=task, fixed=fixed, embeds=embeds))

        return add

    def graphs(task: str) -> dict[str, GraphBuilder]:
        return {MODEL: builder(task)}

    def variants(task: str) -> dict[str, GraphBuilder]:
        return {FROM_EMBEDS: builder(task, embeds=True), EMBED_TOKENS: builder(task, TokenEmbeddings)}

    return (
        Task(
            TEXT_GENERATION, graphs(TEXT_GENERATION), run_decoder, aliases=("lm",), variants=variants(TEXT_GENERATION)
        ),
        Task(
            TEXT_CLASSIFICATION,
            graphs(TEXT_CLASSIFICATION),
            run_decoder,
            weights=classifier(width),
            unneeded=HEAD,
            aliases=("classification",),
        ),
        Task(
            FEATURE_EXTRACTION,
            graphs(FEATURE_EXTRACTION),
            run_decoder,
            unneeded=HEAD,
            aliases=("hidden",),
            variants=variants(FEATURE_EXTRACTION),
        ),
        Task(
            TEXT_RANKING,
            graphs(TEXT_RANKING),
            run_decoder,
            weights=classifier(width, "cls.output.weight"),
            unneeded=HEAD,
        ),
    )


def run_decoder(graphs: Mapping[str, Graph], options: RunOptions) -> LanguageModel:
    """The only graph as a language model."""
    from .language_model import LanguageModel, Placement

    model = LanguageModel(
        graphs[MODEL],
        options.threads,
        options.activations,
        options.tokenizer,
        None if options.config is None else options.config.values.get("context"),
        Placement(options.device, options.device_memory, options.gpu_layers),
    )
    model.options = options
    return model

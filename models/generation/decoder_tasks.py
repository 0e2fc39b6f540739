"""Tasks of decoders: text generation, text classification and feature extraction with one graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ...runtime.contract.architecture import (
    FEATURE_EXTRACTION,
    MODEL,
    TEXT_CLASSIFICATION,
    TEXT_GENERATION,
    TEXT_RANKING,
    Config,
    GraphBuilder,
    RunOptions,
    Task,
    Ways,
    Weight,
)
from ...runtime.ir.graph import Graph
from ...runtime.tensor.tensor import Tensor
from ..layers.decoder import Decoder

if TYPE_CHECKING:
    from .language_model import LanguageModel

HEAD = ("head.",)
"""Weights that predict tokens."""


def classifier(width: str, gguf: Ways = ()) -> tuple[Weight, ...]:
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
    hidden state."""

    def graphs(task: str) -> dict[str, GraphBuilder]:
        def add(graph: Graph, config: Config, weights: Mapping[str, Tensor], *, fixed: bool) -> None:
            build(Decoder(graph, config, weights, task=task, fixed=fixed))

        return {MODEL: add}

    return (
        Task(TEXT_GENERATION, graphs(TEXT_GENERATION), run_decoder, aliases=("lm",)),
        Task(
            TEXT_CLASSIFICATION,
            graphs(TEXT_CLASSIFICATION),
            run_decoder,
            weights=classifier(width),
            unneeded=HEAD,
            aliases=("classification",),
        ),
        Task(FEATURE_EXTRACTION, graphs(FEATURE_EXTRACTION), run_decoder, unneeded=HEAD, aliases=("hidden",)),
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

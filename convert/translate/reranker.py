"""Rerankers in GGUF files: llama.cpp has the rows of the head for yes and no as a classifier, and the prompt as a
template."""

from __future__ import annotations

from ...models.pipelines.ranking.ranking_prompt import ANSWERS, TEMPLATE, ranking_prompt
from ...models.schema.encoder_hyperparameters import LABELS_KEY
from ...models.tokenizer.readers.gguf import TEMPLATE as TEMPLATE_KEY
from ...runtime.base.errors import UnsupportedError
from ...runtime.base.string_array import StringArray
from ...runtime.contract.architecture import TEXT_GENERATION, TEXT_RANKING
from ...runtime.ir.graph import Graph, Meta
from ..load.attached_files import tokenizer_of
from ..load.bind import Model
from ..load.stated_task import for_ranking, stated_task

ARCHITECTURES = ("qwen3",)
"""Architectures of llama.cpp that compare the two answers by a softmax."""


def ranker(graph: Graph, model: Model) -> Model:
    """A language model whose files say that it ranks documents as llama.cpp's converter writes it; others as they
    are."""
    if model.architecture.name not in ARCHITECTURES or model.task.name != TEXT_GENERATION:
        return model
    if stated_task(graph, model) != TEXT_RANKING:
        return model
    found = for_ranking(model)
    if found.weights["classifier.weight"].shape[0] != len(ANSWERS):
        graph.note(
            "W-GGUF-RANK", "the model ranks by one answer, which GGUF has no place for: a language model is written"
        )
        return model
    return found.for_task(TEXT_RANKING)


def refuse_ranker(model: Model) -> None:
    """UnsupportedError for a model whose head is the rows for its answers: transformers has no class for that."""
    if model.task.name == TEXT_RANKING:
        path = model.source.files[0] if model.source.files else None
        why = "the file ranks documents by two rows of a head, for which transformers has no class"
        hint = "Convert the checkpoint that it was made from, or write a GGUF file"
        raise UnsupportedError("E-OUT-ARCH", path, why, hint=hint)


def ranking_keys(graph: Graph, model: Model, known: dict[str, Meta]) -> dict[str, Meta]:
    """The labels and the prompt of a reranker; none for other models, and where `known` has them."""
    labels, template = f"{model.architecture.gguf[0]}.{LABELS_KEY}", f"{TEMPLATE_KEY}.{TEMPLATE}"
    if model.task.name != TEXT_RANKING or template in known:
        return {}
    prompt = ranking_prompt(model.source, tokenizer_of(model.source), None)("{query}", "{document}")
    names = known.get(f"{TEMPLATE_KEY}s")
    others = [str(name) for name in names] if isinstance(names, list | StringArray) else []
    return {labels: list(ANSWERS), template: prompt, f"{TEMPLATE_KEY}s": [*others, TEMPLATE]}

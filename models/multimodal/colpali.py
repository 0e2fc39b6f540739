"""ColPali (Faysse et al. 2024, arXiv:2407.01449): PaliGemma with a vector of 128 elements for each token of a page or a
query, in place of the next token."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...runtime.contract.architecture import Architecture, Key, Row
from ...runtime.contract.hyperparameter import COUNT
from ..layers.image.tower_features import projected_features
from ..pipelines.multimodal.multimodal_tasks import TEXT
from ..pipelines.multimodal.prompts.paligemma_prompt import PALIGEMMA_RULES
from ..pipelines.multimodal.prompts.prompt_rules import VISION_ENCODER
from ..pipelines.ranking.late_interaction_tasks import PROJECTION, late_interaction_task
from ..pipelines.ranking.retrieval_prompts import RetrievalPrompts
from ..schema.clip.paligemma_rows import paligemma_keys, paligemma_projector
from ..schema.clip.vision_part import VISION, vision_tower
from ..schema.hyperparameters import matrix
from ..schema.language_part import LANGUAGE_MODEL
from ..schema.network_hyperparameters import Stated

CLASS, ORIGINAL_CLASS = "ColPaliForRetrieval", "ColPali"
"""The classes of transformers and of colpali_engine, by the authors."""
PLACE = "vlm_config"
"""The object that has PaliGemma's configuration in transformers."""
PROMPTS = RetrievalPrompts("Question: ", "Describe the image.", padding=10)


def is_original(source: Mapping[str, Any]) -> bool:
    """Whether a config.json of PaliGemma is of colpali_engine's class."""
    return source.get("architectures") == [ORIGINAL_CLASS]


def _colpali(
    name: str,
    keys: tuple[Row, ...],
    *,
    model_type: str,
    place: str,
    prefix: str,
    projection: str,
    accepts: Callable[[Mapping[str, Any]], bool] | None = None,
) -> Architecture:
    """The architecture of files of one kind.

    Args:
        place, prefix: where config.json and names of weights have PaliGemma.
        projection: how the names of the weights that make vectors begin.
    """
    return Architecture(
        name,
        "ColPali",
        (model_type,),
        (),
        (*keys, *paligemma_keys(f"{place}." if place else "")),
        (*paligemma_projector(prefix), *matrix(PROJECTION, projection, None, shape=("width", "text.hidden"))),
        (late_interaction_task({VISION_ENCODER: projected_features}, PALIGEMMA_RULES, PROMPTS),),
        accepts=accepts,
        wide_activations=True,
        parts={VISION: vision_tower().inside(place, prefix), TEXT: LANGUAGE_MODEL.inside(place, prefix)},
    )


ARCHITECTURES = (
    _colpali(
        "colpali",
        (
            Stated("architectures", [CLASS]),
            Stated(f"{PLACE}.model_type", "paligemma"),
            Key("width", "embedding_dim", (), 128, COUNT),
        ),
        model_type="colpali",
        place=PLACE,
        prefix="vlm.",
        projection="embedding_proj_layer",
    ),
    _colpali(
        "colpali_engine",
        (Stated("architectures", [ORIGINAL_CLASS]), Key("width", (), (), None, COUNT)),
        model_type="paligemma",
        place="",
        prefix="model.",
        projection="custom_text_proj",
        accepts=is_original,
    ),
)

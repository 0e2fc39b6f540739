"""Rows of PaliGemma, of files of its own and of models that have it inside."""

from __future__ import annotations

from ....runtime.contract.architecture import Key, Weight
from ....runtime.contract.hyperparameter import COUNT, SIZE, flag
from ..hyperparameters import matrix

PROJECTOR = "multi_modal_projector.linear"


def paligemma_keys(place: str = "") -> tuple[Key, ...]:
    """Hyper-parameters besides those of the parts; `place`: how their keys in config.json begin."""
    return (
        Key("image_token", (f"{place}image_token_index", f"{place}image_token_id"), (), 256000, SIZE),
        Key("projection", f"{place}projection_dim", (), 2048, COUNT, at_most=("text.hidden",)),
        Key("text.token_groups", (), (), True, flag),
        Key("text.token_prefix", (), (), True, flag),
    )


def paligemma_projector(prefix: str = "") -> tuple[Weight, Weight]:
    """The linear layer from patches to embeddings of tokens; `prefix`: how its names begin."""
    names = (f"{prefix}{PROJECTOR}", f"{prefix}model.{PROJECTOR}")
    return matrix("projector", names, None, shape=("text.hidden", "vision.hidden"))

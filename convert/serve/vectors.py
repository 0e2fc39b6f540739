"""Vectors of inputs: jobs that are joined with those of other requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...models.pipelines.task_model import check_options
from ...models.postprocess.finite_results import finite
from .call import Call
from .requests.media import model_inputs
from .served_model import ServedModel

EMBED = "embed"


async def embedded(call: Call, model: ServedModel, inputs: list[Any], name: str, **options: Any) -> list[np.ndarray]:
    """Vectors f32 of texts, lists of ids, or data: URLs of pictures and sounds, as the model takes them.

    Args:
        name: the field of the inputs.
        options: of the model's method `embed`; None for what its files state. UsageError for those that it lacks.
    """
    given = {option: value for option, value in options.items() if value is not None}
    check_options(model.model.task, model.model.embed, given)
    items = model_inputs(inputs, model.takes, name, mixed=True)

    def compute(some: list[Any], check: Callable[[], None]) -> list[np.ndarray]:
        found = list(model.model.embed(some, **given, progress=lambda done, total: check()))
        finite(found, ["the vectors"], masked=False)
        return found

    return await call.computed((model.name, EMBED, *sorted(given.items())), items, compute)

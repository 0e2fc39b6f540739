"""Generation settings of models that write audio codes, from generation_config.json next to the weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .....runtime.base.dataclass import dataclass
from .....runtime.base.errors import FormatError
from .....runtime.contract.hyperparameter import COUNT, SIZE, Integer, Listed, ParameterError, Real, checked, flag
from .....runtime.ir.graph import Graph
from ....generation.sampling import Sampling
from ....tokenizer.readers.locate import settings

FILE = "generation_config.json"
TEMPERATURE, TOP_K = 1.0, 50
"""Defaults of transformers for models that draw their codes."""
MAX_GUIDANCE = 100.0


@dataclass(frozen=True)
class SynthesisSettings:
    """Defaults of `speak`.

    Attributes:
        sampling: how codes are chosen.
        guidance: scale of classifier-free guidance; 1 for none.
        max_length: positions of the longest sequence, None for no limit.
        min_length: positions before which a sequence does not end.
        ends: codes that end a sequence.
    """

    sampling: Sampling
    guidance: float = 1.0
    max_length: int | None = None
    min_length: int = 0
    ends: tuple[int, ...] = ()


def synthesis_settings(source: Graph | None) -> SynthesisSettings:
    """The settings that the file next to a model states. FormatError for an invalid value."""
    stated = (
        {} if source is None else {key: value for key, value in settings(source, FILE).items() if value is not None}
    )

    def get(key: str, default: Any, kind: Callable[[Any], Any]) -> Any:
        return checked(key, stated[key], kind) if key in stated else default

    try:
        ends = stated.get("eos_token_id", [])
        return SynthesisSettings(
            Sampling(
                temperature=get("temperature", TEMPERATURE, Real(0)) if get("do_sample", True, flag) else 0.0,
                top_k=get("top_k", TOP_K, SIZE),
                top_p=get("top_p", 1.0, Real(0, 1)),
                min_p=get("min_p", 0.0, Real(0, 1)),
            ),
            get("guidance_scale", 1.0, Real(0, MAX_GUIDANCE)),
            get("max_length", None, COUNT),
            get("min_new_tokens", 0, SIZE),
            tuple(checked("eos_token_id", [ends] if isinstance(ends, int) else ends, Listed(Integer()))),
        )
    except ParameterError as error:
        path = source.files[0] if source is not None and source.files else None
        why = f"invalid parameter {error.key}: {error}"
        raise FormatError("E-GENERATION-KEY", path, why, hint=f"Correct it in {FILE}") from error

"""Generation settings of encoder-decoders, from generation_config.json and config.json next to the weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import FormatError
from ...runtime.contract.hyperparameter import COUNT, SIZE, Integer, Listed, ParameterError, Real, checked, flag
from ...runtime.ir.graph import Graph
from ..generation.beam_search import MAX_BEAMS, NEVER, Beams
from ..generation.token_constraints import TokenConstraints
from ..tokenizer.readers.locate import settings

FILES = ("config.json", "generation_config.json")
"""Files that state settings; the last one has precedence."""
MAX_WORDS = 1024


@dataclass(frozen=True)
class GenerationSettings:
    """Defaults of `generate`.

    Attributes:
        start: token that the decoder starts from.
        pad: token that fills shorter texts.
        ends: tokens that end a text; empty for those of the tokenizer.
        max_length: length of the longest text, the first token included; None for no limit.
        beams: count and comparison of hypotheses.
        constraints: constraints on tokens.
    """

    start: int
    pad: int
    ends: tuple[int, ...]
    max_length: int | None
    beams: Beams
    constraints: TokenConstraints


def settings_of(graph: Graph, start: int, vocabulary: int) -> GenerationSettings:
    """The settings that the files next to a graph state.

    Args:
        start: the decoder's first token if they state none.
        vocabulary: tokens that the model knows.

    Raises FormatError for an invalid value.
    """
    stated: dict[str, Any] = {}
    for name in FILES:
        stated |= {key: value for key, value in settings(graph, name).items() if value is not None}
    token = Integer(0, vocabulary - 1)

    def get(key: str, default: Any, kind: Callable[[Any], Any]) -> Any:
        return checked(key, stated[key], kind) if key in stated else default

    def several(key: str) -> tuple[int, ...]:
        value = stated.get(key)
        return tuple(checked(key, [value] if isinstance(value, int) else value or [], Listed(token)))

    try:
        return GenerationSettings(
            get("decoder_start_token_id", start, token),
            get("pad_token_id", 0, token),
            several("eos_token_id"),
            get("max_length", None, COUNT),
            Beams(
                get("num_beams", 1, Integer(1, MAX_BEAMS)),
                get("length_penalty", 1.0, Real()),
                get("early_stopping", False, lambda value: value if value == NEVER else flag(value)),
            ),
            TokenConstraints(
                get("repetition_penalty", 1.0, Real(0, above=True)),
                get("no_repeat_ngram_size", 0, SIZE),
                tuple(map(tuple, get("bad_words_ids", [], Listed(Listed(token, 1), most=MAX_WORDS)))),
                get("min_length", 0, SIZE),
                get("forced_bos_token_id", None, token),
                several("forced_eos_token_id"),
                several("suppress_tokens"),
                several("begin_suppress_tokens"),
            ),
        )
    except ParameterError as error:
        path = graph.files[0] if graph.files else None
        hint = "Correct it in generation_config.json or config.json"
        raise FormatError("E-GENERATION-KEY", path, f"invalid parameter {error.key}: {error}", hint=hint) from error

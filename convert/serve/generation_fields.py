"""Fields of requests for text: sampling, limits and stop strings, as OpenAI and llama.cpp name them."""

from __future__ import annotations

import math
from typing import Any

from ...models.generation.batching.grammar import Grammar
from ...models.generation.batching.request import Request
from ...models.generation.sampling import Sampling
from .requests.http_error import bad_request
from .requests.request_fields import Anything, Either, Field, Flag, Many, Number, Record, Text, integer
from .served_model import ServedModel

MAX_CHOICES = 16
MAX_STOPS = 16
UNUSED = (
    "user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention",
)  # fmt: skip
"""Fields of OpenAI's accounts."""
DEFAULT_TOKENS = 2048
"""Limit of tokens for models whose context is not known."""
STOP = Field(Either((Text(longest=1000), Many(Text(longest=1000), most=MAX_STOPS))), help="Strings that end the text.")
FIELDS = {
    "temperature": Field(Number(0, 100), help="Divides the logits; 0 picks the most likely token (default 0.8)."),
    "top_p": Field(Number(0, 1), help="Sample from the most likely tokens with this total probability."),
    "top_k": Field(integer(0), help="Sample from the K most likely tokens, 0 for all."),
    "min_p": Field(Number(0, 1), help="Minimum probability relative to the most likely token."),
    "repeat_penalty": Field(Number(1e-6, 100), help="Penalty for recent tokens, 1 for none."),
    "repeat_last": Field(integer(-1), help="Recent tokens of the penalty, -1 for all."),
    "frequency_penalty": Field(Number(0, 0), help="Only 0 is taken; use repeat_penalty."),
    "presence_penalty": Field(Number(0, 0), help="Only 0 is taken; use repeat_penalty."),
    "seed": Field(integer(0), help="Random seed; the same seed gives the same text."),
    "stop": STOP,
    "logit_bias": Field(Anything(), help="Numbers that are added to logits, by token id."),
    "ignore_eos": Field(Flag(), default=False, help="Whether end tokens are never chosen."),
    "n": Field(integer(1, MAX_CHOICES), default=1, help="Number of texts."),
    "stream": Field(Flag(), default=False, help="Send the text as server-sent events."),
    "stream_options": Field(
        Record({"include_usage": Field(Flag(), default=False)}, unused=("include_obfuscation",)),
        help="include_usage: whether the last event counts tokens.",
    ),
}
SAMPLING = ("temperature", "top_k", "top_p", "min_p", "repeat_penalty", "repeat_last")


def request_of(
    values: dict[str, Any],
    model: ServedModel,
    ids: list[int],
    max_tokens: int | None,
    choice: int,
    logprobs: int,
    grammar: Grammar | None = None,
) -> Request:
    """A request to the engine; choices of one seed have seeds that count up."""
    stop = values["stop"]
    seed = values["seed"]
    if max_tokens is None and model.context is None:
        max_tokens = DEFAULT_TOKENS
    return Request(
        ids,
        max_tokens,
        Sampling(**{name: values[name] for name in SAMPLING if values[name] is not None}),
        [stop] if isinstance(stop, str) else stop or [],
        None if seed is None else seed + choice,
        logit_bias=_logit_bias(values["logit_bias"]) | (_without_ends(model) if values["ignore_eos"] else {}),
        logprobs=logprobs,
        constraint=None if grammar is None else grammar.constraint(),
    )


def include_usage(values: dict[str, Any]) -> bool:
    """Whether the last event of a stream counts tokens."""
    return bool((values["stream_options"] or {}).get("include_usage"))


def _without_ends(model: ServedModel) -> dict[int, float]:
    return dict.fromkeys(model.model.tokenizer.ends, -math.inf)


def _logit_bias(given: dict[str, Any] | None) -> dict[int, float]:
    number = Number(-100, 100)
    found = {}
    for key, value in (given or {}).items():
        if not key.isdecimal() or len(key) > 18:
            raise bad_request(f"logit_bias has the key {key[:40]!r}, expected token ids", "logit_bias")
        found[int(key)] = number.read(value, f"logit_bias.{key}")
    return found

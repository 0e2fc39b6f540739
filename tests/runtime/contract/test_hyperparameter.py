"""Kinds of hyper-parameters, and that every one of every architecture is bounded by a shape, by another parameter or by
its kind."""

import math

import numpy as np
import pytest
from candle_convert.runtime.base.string_array import StringArray
from candle_convert.runtime.contract.architecture import Key
from candle_convert.runtime.contract.hyperparameter import (
    COUNT,
    EVEN,
    POSITIVE,
    SIZE,
    Choice,
    Integer,
    Listed,
    ParameterError,
    Real,
    StatedValues,
    checked,
    flag,
    mapping,
    shown,
    word,
)  # fmt: skip
from candle_convert.runtime.contract.weight_binding import architectures

ACCEPTED = [
    (SIZE, 0, 0),
    (SIZE, 4096.0, 4096),
    (COUNT, 1, 1),
    (EVEN, 64, 64),
    (POSITIVE, 1, 1.0),
    (Real(0), 0, 0.0),
    (flag, True, True),
    (flag, 0, False),
    (word, "x", "x"),
    (Choice(("a", "b")), "b", "b"),
    (Listed(SIZE), [], []),
    (Listed(COUNT), [1, 2.0], [1, 2]),
    (Listed(word), StringArray(b"catdog", np.array([3, 6])), ["cat", "dog"]),
    (mapping, {"a": 1}, {"a": 1}),
]
REFUSED = [
    (SIZE, -1, "less than 0"),
    (SIZE, 2**31, "more than 2,147,483,647"),
    (SIZE, 10**400, "an integer of"),
    (SIZE, True, "not an integer"),
    (SIZE, 1.5, "not an integer"),
    (SIZE, math.nan, "not an integer"),
    (SIZE, math.inf, "not an integer"),
    (SIZE, "8", "not an integer"),
    (SIZE, None, "null is not an integer"),
    (SIZE, [8], "a list of 1"),
    (SIZE, {"a": 8}, "an object"),
    (COUNT, 0, "less than 1"),
    (EVEN, 63, "multiple of 2"),
    (POSITIVE, 0, "above 0"),
    (POSITIVE, True, "true is not a number"),
    (POSITIVE, math.inf, "not a finite"),
    (POSITIVE, math.nan, "not a finite"),
    (POSITIVE, 1e308, "more than"),
    (POSITIVE, 1e-308, "zero in float32"),
    (POSITIVE, 10**400, "more than"),
    (flag, "true", "not true or false"),
    (flag, 2, "not true or false"),
    (word, 1, "not a string"),
    (Choice(("a",)), "c", "not one of a"),
    (Listed(SIZE, 2), [1], "2 to"),
    (Listed(SIZE), "12", "not a list"),
    (Listed(SIZE), [1, -1], "less than 0"),
    (mapping, [1], "not an object"),
]
FREE = {
    "image_size",
    "image_token",
    "video_token",
    "vision_token",
    "vision_start",
    "vision_end",
    "context",
    "longest",
    "key_heads",
    "key_size",
    "kv_heads",
    "cached_heads",
    "full_layers",
    "sliding_layers",
    "labels",
    "bos",
    "eos",
    "pad",
    "tokens",
    "no_heads",
    "heads",
    "feed_forward",
    "expand",
    "ratio",
    "doubled",
    "window",
    "norms",
    "dense_layers",
    "original",
    "groups",
    "rope_dim",
    "state",
    "expert_intermediate",
    "sparse_step",
    "pattern",
    "period",
    "farthest",
    "floor",
    "buckets",
    "positions",
    "trained_context",
    "image_begin",
    "image_end",
}
"""Parameters that are compared or written, or that are terms of another one, which a shape has."""


@pytest.mark.parametrize(("kind", "value", "found"), ACCEPTED)
def test_accepted(kind, value, found):
    assert kind(value) == found
    assert type(kind(value)) is type(found)


@pytest.mark.parametrize(("kind", "value", "why"), REFUSED)
def test_refused_in_words(kind, value, why):
    with pytest.raises(ParameterError, match=why) as caught:
        checked("key", value, kind)
    assert caught.value.key == "key"
    assert len(str(caught.value)) < 120


def test_values_are_shown_within_a_line():
    assert [shown(value) for value in ("x" * 1000, 2**100_000, [0] * 9, None)] == [
        '"' + "x" * 60 + '…"', "an integer of 100,001 bits", "a list of 9", "null",
    ]  # fmt: skip


def test_metadata_is_plain_with_and_without_its_prefix():
    said = StatedValues(
        {"llama.block_count": np.uint32(2), "llama.windows": np.array([True, False]), "general.name": "x"}, "llama."
    )
    assert (type(said["block_count"]), said["windows"], said["general.name"]) == (int, [True, False], "x")
    assert list(said) == ["block_count", "windows", "general.name"]


SIZED = [each for each in architectures() if not each.modules]
"""Architectures whose sizes the configuration states; those of image models are taken from the weights."""


@pytest.mark.parametrize("architecture", SIZED, ids=lambda each: each.name)
def test_every_integer_is_bounded_before_anything_is_made(architecture):
    in_shapes = {
        name
        for row in architecture.weights
        for length in row.shape or ()
        if isinstance(length, str)
        for name in length.split("*")
    }
    loops = {row.layers for row in architecture.weights if "{i}" in row.name}
    for row in architecture.keys:
        if isinstance(row, Key) and isinstance(row.kind, Integer):
            assert (
                row.name in in_shapes | loops
                or row.name.rpartition(".")[2] in FREE
                or row.at_most
                or row.kind.high <= 1024
                or not row.keys("hf") + row.keys("gguf")
            ), row.name


@pytest.mark.parametrize("architecture", architectures(), ids=lambda each: each.name)
def test_every_weight_states_its_shape(architecture):
    unused = r"unused"
    assert [row.name for row in architecture.weights if row.shape is None and unused not in row.name] == []

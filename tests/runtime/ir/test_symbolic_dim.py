"""Sums of lengths that are symbols."""

import pytest
from candle_convert.runtime.ir.symbolic_dim import MAX_CHARACTERS, subtract_dims, sum_dims


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ([2, 3], 5),
        ([], 0),
        (["n", 0], "n"),
        (["n", 3], "n + 3"),
        (["past", "length"], "length + past"),
        (["n", "n"], "n + n"),
        (["n", None], None),
        (["b + 2", "a", 1], "a + b + 3"),
        (["x" * MAX_CHARACTERS, 1], None),
        (["a-b", "c + ²"], "a-b + c + ²"),
    ],
)
def test_sums(lengths, expected):
    assert sum_dims(lengths) == expected


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("length + past", "past", "length"),
        ("length + past", "length + past", 0),
        ("n + 3", 2, "n + 1"),
        ("n", 1, None),
        ("n", "m", None),
        (3, 5, None),
        ("n + n", "n", "n"),
        (None, 0, None),
        ("n", None, None),
        ("n", 0, "n"),
    ],
)
def test_differences_are_known_where_terms_go_away(one, other, expected):
    assert subtract_dims(one, other) == expected

"""Inputs of predictions: texts and pairs, alone or in lists."""

from types import SimpleNamespace

import pytest

pytest.importorskip("starlette", reason="the server needs starlette, of the extra serve")
from candle_convert.convert.serve.endpoints.predictions import _inputs
from candle_convert.convert.serve.requests.http_error import HTTPError

TEXTS = SimpleNamespace(takes="texts")


def test_texts_and_pairs():
    assert _inputs("a", TEXTS) == (["a"], True)
    assert _inputs(["a", "b"], TEXTS) == ([("a", "b")], True)
    assert _inputs([["a"], ["a", "b"]], TEXTS) == (["a", ("a", "b")], False)


def test_three_texts_are_no_input():
    with pytest.raises(HTTPError, match="one input of 3 texts") as error:
        _inputs(["a", "b", "c"], TEXTS)
    assert (error.value.status, error.value.param) == (400, "inputs")

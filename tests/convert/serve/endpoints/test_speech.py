"""Voices of speech: numbers of speakers."""

from types import SimpleNamespace

import pytest

pytest.importorskip("starlette", reason="the server needs starlette, of the extra serve")
from candle_convert.convert.serve.endpoints.speech import _voice
from candle_convert.convert.serve.requests.http_error import HTTPError

MODEL = SimpleNamespace(name="vits", model=SimpleNamespace(reads=("speaker",)))


def test_a_number_is_a_speaker():
    assert _voice({"voice": "12", "instructions": None}, MODEL)["speaker"] == 12


def test_a_number_that_is_too_long_is_no_speaker():
    with pytest.raises(HTTPError, match="no voice"):
        _voice({"voice": "1234567890", "instructions": None}, MODEL)

"""Typed metadata through strings and back."""

import json

import numpy as np
import pytest
from candle_convert.runtime.contract.metadata import FILES_KEY, TYPED_KEY, from_json, from_strings, to_json, to_strings
from candle_convert.runtime.ir.graph import Graph
from candle_convert.runtime.tensor.storage import Held

VALUES = [
    "text",
    "",
    5,
    -1,
    2.5,
    True,
    None,
    [1, "a", [2.5]],
    b"\xff\x00",
    {"a": 1, "b": [b"x"]},
    [],
    np.uint32(7),
    np.int8(-3),
    np.float32(0.1),
    np.float64("inf"),
    np.bool_(True),
    np.arange(4, dtype=np.uint64),
    np.array([np.nan, 1.5], np.float32),
    np.empty(0, np.int16),
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_values_keep_their_types(value):
    back = from_json(json.loads(json.dumps(to_json(value), allow_nan=False)))
    assert type(back) is type(value)
    if isinstance(value, (np.ndarray, np.generic)):
        assert back.dtype == value.dtype
    assert np.array_equal(back, value, equal_nan=True) if isinstance(value, np.ndarray) else back == value


def test_graph_round_trip():
    graph = Graph(
        metadata={"format": "pt", "layers": np.uint32(4), "nested": {"a": [1, b"\x80"]}},
        attachments={"config.json": Held(b'{"a": "\xc3\xa9"}'), "model.bin": Held(b"\xff\xfe")},
    )
    strings = to_strings(graph)
    assert all(isinstance(value, str) for value in strings.values())
    back = Graph()
    from_strings(strings, back)
    assert back.metadata == graph.metadata
    assert {name: bytes(held.read(0, held.nbytes)) for name, held in back.attachments.items()} == {
        "config.json": b'{"a": "\xc3\xa9"}',
        "model.bin": b"\xff\xfe",
    }


NOT_OURS = [
    "",
    "[]",
    "5",
    '{"a": {}}',
    '{"a": {"type": "object", "base64": ""}}',
    '{"a": {"type": "int8", "base64": "!"}}',
    "[" * 5000,
]


@pytest.mark.parametrize("text", NOT_OURS)
@pytest.mark.parametrize("key", [TYPED_KEY, FILES_KEY])
def test_what_is_not_ours_stays_a_string(key, text):
    graph = Graph()
    from_strings({key: text}, graph)
    assert graph.metadata == {key: text}
    assert not graph.attachments


@pytest.mark.parametrize("name", ["../x", "a/../../b", "/a", "a//b", "..", "a\\b", ""])
def test_attached_names_cannot_lead_elsewhere(name):
    graph = Graph()
    from_strings({FILES_KEY: json.dumps({name: "x"})}, graph)
    assert not graph.attachments

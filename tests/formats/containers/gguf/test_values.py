"""GGUF metadata: which type a value takes, and that each comes back as it was."""

import candle_convert as cc
import hypothesis
import numpy as np
import pytest
from candle_convert.formats.containers.gguf.values import BrokenText
from candle_convert.runtime.contract.metadata import TYPED_KEY
from candle_convert.runtime.tensor.dtype import I8
from candle_convert.tests.builders.gguf_files import random_tensor, same, write
from hypothesis import strategies as st

RULES = [
    (7, np.uint32(7)),
    (2**32, np.int64(2**32)),
    (-1, np.int64(-1)),
    (2**64 - 1, np.uint64(2**64 - 1)),
    (0.1, np.float64(0.1)),
    (np.bool_(True), True),
    (b"\x00a", np.array([0, 97], np.uint8)),
    ([], []),
    ([1, -2], np.array([1, -2], np.int32)),
    ([1, 2**40], np.array([1, 2**40], np.int64)),
    ([2**63, 1], np.array([2**63, 1], np.uint64)),
    ([0.5, 0.1], np.array([0.5, 0.1])),
    ([True, False], np.array([True, False])),
    (np.empty(0, np.float32), np.empty(0, np.float32)),
    ((), ()),
    ((["a"], (), (np.array([1], np.int8),)), (["a"], (), (np.array([1], np.int8),))),
    (np.array(3, np.int16), np.int16(3)),
    (BrokenText(b"\xff"), b"\xff"),
    ([BrokenText(b"\xff"), "a"], [b"\xff", "a"]),
]


@pytest.mark.parametrize(("value", "expected"), RULES, ids=lambda value: repr(value)[:40])
def test_types_of_values_from_elsewhere(value, expected, tmp_path):
    (path,) = write(tmp_path / "a.gguf", {}, {"k": value})
    found = cc.open(path).metadata["k"]
    assert same({"k": found}, {"k": expected})
    assert isinstance(found, tuple) == isinstance(expected, tuple)
    (again,) = write(tmp_path / "b.gguf", {}, {"k": found})
    assert again.read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    "value",
    [None, {"a": [1, {"b": None}]}, [1, "a"], [1, 0.5], [[1], [2]], 2**70, np.float16(0.5), np.complex64(1j), "\ud800"],
)
def test_values_without_a_type_go_as_json_and_come_back(value, tmp_path):
    (path,) = write(tmp_path / "a.gguf", {}, {"first": "1", "k": value, "last": "2"})
    found = cc.open(path)
    assert same(dict(sorted(found.metadata.items())), {"first": "1", "k": value, "last": "2"})
    (again,) = write(tmp_path / "b.gguf", {}, found.metadata)
    assert again.read_bytes() == path.read_bytes()


NUMBERS = [
    np.uint8,
    np.int8,
    np.uint16,
    np.int16,
    np.uint32,
    np.int32,
    np.uint64,
    np.int64,
    np.float32,
    np.float64,
    np.bool_,
]
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=9)
ARRAYS = st.one_of(
    st.lists(TEXT, max_size=5),
    st.tuples(st.sampled_from(NUMBERS), st.binary(max_size=5)).map(
        lambda made: np.frombuffer(made[1], np.uint8).astype(made[0])
    ),
)
HELD = st.one_of(TEXT, st.booleans(), st.integers(0, 255).map(np.uint64), st.floats(width=32).map(np.float32), ARRAYS)
NESTED = st.recursive(ARRAYS, lambda inner: st.lists(inner, max_size=4).map(tuple), max_leaves=8)


@hypothesis.given(st.dictionaries(TEXT.filter(lambda key: key.strip() == key != ""), HELD | NESTED, max_size=6))
@hypothesis.settings(max_examples=80)
def test_metadata_comes_back_and_is_written_the_same_again(tmp_path, metadata):
    (path,) = write(tmp_path / "a.gguf", {"x": random_tensor(I8)}, metadata)
    graph = cc.open(path)
    assert same(graph.metadata, metadata)
    (again,) = write(tmp_path / "b.gguf", graph.weights, graph.metadata)
    assert again.read_bytes() == path.read_bytes()


def test_json_that_is_not_ours_stays_text(tmp_path):
    for text in ("[", '{"general.architecture": "evil"}'):
        metadata = {"general.architecture": "llama", TYPED_KEY: text}
        (path,) = write(tmp_path / "a.gguf", {}, metadata)
        assert cc.open(path).metadata == metadata
    with pytest.raises(cc.UsageError, match="E-GGUF-KEY"):
        write(tmp_path / "a.gguf", {}, {**metadata, "k": None})

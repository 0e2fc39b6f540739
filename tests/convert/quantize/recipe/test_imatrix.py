"""Importance matrices of both formats, written by the gguf library and byte by byte, and what is wrong with broken
ones."""

import struct

import numpy as np
import pytest
from candle_convert.convert.quantize.recipe import imatrix
from candle_convert.convert.translate.model_facts import Weight
from candle_convert.runtime.base.errors import FormatError, UsageError
from candle_convert.runtime.tensor.dtype import F16
from candle_convert.tests.builders.imatrix_files import old_bytes, write_gguf

RNG = np.random.default_rng(3)


def test_gguf(tmp_path):
    dense, experts = RNG.random((1, 64), np.float32), RNG.random((4, 32), np.float32)
    path = write_gguf(
        tmp_path / "i.gguf",
        {
            "blk.0.attn_q.weight.in_sum2": dense,
            "blk.0.attn_q.weight.counts": np.array([[12]], np.float32),
            "blk.0.ffn_up_exps.weight.in_sum2": experts,
            "blk.0.ffn_up_exps.weight.counts": np.array([[3], [0], [7], [1]], np.float32),
        },
    )
    found = imatrix.read(path)
    assert (found.datasets, found.chunks) == (["a.txt", "b.txt"], 7)
    assert np.array_equal(found.values["blk.0.attn_q.weight"], dense[0] / np.float32(12))
    expected = np.stack([experts[0] / np.float32(3), np.ones(32, np.float32), experts[2] / np.float32(7), experts[3]])
    weight = Weight("blk.0.ffn_up_exps.weight", F16, (4, 8, 32))
    assert np.array_equal(found.of(weight, weight.name), expected)
    assert [note.code for note in found.notes] == ["W-IMATRIX-ZERO"]
    assert "1 of 4 experts" in found.notes[0].message


def test_many_texts(tmp_path):
    names = [f"{number}.txt" for number in range(300)]
    path = write_gguf(
        tmp_path / "i.gguf",
        {"a.weight.in_sum2": np.ones((1, 32), np.float32), "a.weight.counts": np.ones((1, 1), np.float32)},
        datasets=names,
    )
    assert imatrix.read(path).datasets == names


def test_old(tmp_path):
    values = RNG.random(64, np.float32)
    path = tmp_path / "i.dat"
    path.write_bytes(old_bytes({"a.weight": (5, values), "b.weight": (0, values)}, struct.pack("<ii", 9, 4) + b"text"))
    found = imatrix.read(str(path))
    assert np.array_equal(found.values["a.weight"], values / np.float32(5))
    assert np.array_equal(found.values["b.weight"], values)
    assert (found.chunks, found.datasets) == (9, ["text"])
    path.write_bytes(old_bytes({"a.weight": (5, values)}))
    assert imatrix.read(str(path)).chunks == 0


def test_lengths_that_do_not_fit(tmp_path):
    path = tmp_path / "i.dat"
    path.write_bytes(old_bytes({name: (1, np.ones(64)) for name in ("a.weight", "token_embd.weight")}))
    found = imatrix.read(str(path))
    assert found.of(Weight("c.weight", F16, (4, 64)), "c.weight") is None
    assert found.of(Weight("token_embd.weight", F16, (4, 32)), "token_embd.weight") is None
    assert found.of(Weight("a.weight", F16, (2, 4, 32)), "a.weight").shape == (2, 32)
    with pytest.raises(FormatError) as error:
        found.of(Weight("a.weight", F16, (4, 32)), "a.weight")
    assert error.value.code == "E-IMATRIX-SHAPE"


def test_entries_are_chosen_by_name(tmp_path):
    path = tmp_path / "i.dat"
    path.write_bytes(old_bytes({name: (1, np.ones(4)) for name in ("blk.0.a", "blk.1.a", "blk.1.b")}))
    found = imatrix.read(str(path))
    assert set(found.limited(("blk.1",), ()).values) == {"blk.1.a", "blk.1.b"}
    assert set(found.limited((), (".b", "blk.0")).values) == {"blk.1.a"}
    with pytest.raises(UsageError):
        found.limited(("a",), ("b",))


GOOD = old_bytes({"a.weight": (5, np.ones(8))}, struct.pack("<ii", 9, 4) + b"text")
BROKEN = [
    ("empty", b"", "E-IMATRIX-TRUNCATED"),
    ("no entries", struct.pack("<i", 0), "E-IMATRIX-COUNT"),
    ("negative", struct.pack("<i", -1), "E-IMATRIX-COUNT"),
    ("many entries", struct.pack("<i", 2**31 - 1) + bytes(64), "E-IMATRIX-COUNT"),
    ("name length", struct.pack("<ii", 1, 2**31 - 1) + bytes(64), "E-IMATRIX-TRUNCATED"),
    ("negative name length", struct.pack("<ii", 1, -5) + bytes(64), "E-IMATRIX-COUNT"),
    ("no values", struct.pack("<ii", 1, 1) + b"a" + struct.pack("<ii", 1, 0) + bytes(64), "E-IMATRIX-COUNT"),
    ("many values", struct.pack("<ii", 1, 1) + b"a" + struct.pack("<ii", 1, 2**30) + bytes(64), "E-IMATRIX-TRUNCATED"),
    ("nan", old_bytes({"a": (1, [1.0, np.nan])}), "E-IMATRIX-VALUE"),
    ("infinite", old_bytes({"a": (1, [np.inf])}), "E-IMATRIX-VALUE"),
    ("less than nothing", old_bytes({"a": (1, [-1.0])}), "E-IMATRIX-VALUE"),
]


@pytest.mark.parametrize(("data", "code"), [row[1:] for row in BROKEN], ids=[row[0] for row in BROKEN])
def test_broken_old_files(tmp_path, data, code):
    path = tmp_path / "i.dat"
    path.write_bytes(data)
    with pytest.raises(FormatError) as error:
        imatrix.read(str(path))
    assert error.value.code == code
    assert error.value.hint


def test_cut_anywhere(tmp_path):
    path = tmp_path / "i.dat"
    whole = len(old_bytes({"a.weight": (5, np.ones(8))}))
    for length in range(len(GOOD)):
        path.write_bytes(GOOD[:length])
        if length in (whole, whole + 4):
            imatrix.read(str(path))
            continue
        with pytest.raises(FormatError):
            imatrix.read(str(path))


@pytest.mark.parametrize(
    ("tensors", "code"),
    [
        ({"x": np.ones((2, 2), np.float32)}, "E-IMATRIX-EMPTY"),
        ({"a.in_sum2": np.ones((1, 4), np.float32)}, "E-IMATRIX-COUNTS"),
        ({"a.in_sum2": np.ones((1, 4), np.float32), "a.counts": np.ones((3, 1), np.float32)}, "E-IMATRIX-COUNTS"),
        ({"a.in_sum2": np.ones((1, 4), np.float16), "a.counts": np.ones((1, 1), np.float32)}, "E-IMATRIX-DTYPE"),
        (
            {"a.in_sum2": np.full((1, 4), np.nan, np.float32), "a.counts": np.ones((1, 1), np.float32)},
            "E-IMATRIX-VALUE",
        ),
    ],
)
def test_broken_gguf_files(tmp_path, tensors, code):
    with pytest.raises(FormatError) as error:
        imatrix.read(write_gguf(tmp_path / "i.gguf", tensors))
    assert error.value.code == code

"""npz and npy that are hostile, broken, cut off or changed, with numpy as the oracle for headers."""

import io
import random
import zipfile

import candle_convert as cc
import numpy as np
import pytest
from candle_convert.tests.builders.npy_files import (
    NESTED,
    OBJECTS,
    RIGHT,
    STRUCTURE,
    assert_same,
    npy,
    patterns,
    saved,
    zipped,
)
from hypothesis import given, settings
from hypothesis import strategies as st

GIB = 1 << 30


def shape(text, data=bytes(16), dtype="<f8"):
    return npy(f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {text}, }}", data)


def descr(text, data=bytes(16)):
    return npy(f"{{'descr': {text}, 'fortran_order': False, 'shape': (2,), }}", data)


# number, id, the npy file's bytes, our error code ("" where it opens)
HOSTILE = [
    (71, "objects", OBJECTS, "E-NPZ-PICKLE"),
    (71, "objects-of-python-2", descr("'|O8'"), "E-NPZ-PICKLE"),
    (71, "objects-by-name", descr("'object'"), "E-NPZ-PICKLE"),
    (71, "structure", STRUCTURE, "E-NPZ-DTYPE"),
    (71, "structure-of-objects", NESTED, "E-NPZ-PICKLE"),
    (71, "array-in-array", descr("('<f8', (2,))"), "E-NPZ-DTYPE"),
    (71, "array-of-objects-in-array", descr("('|O', (2,))"), "E-NPZ-PICKLE"),
    (71, "text", saved(np.array(["ab", "c"])), "E-NPZ-DTYPE"),
    (71, "bytes", saved(np.array([b"ab", b"c"])), "E-NPZ-DTYPE"),
    (71, "dates", saved(np.array(["2020-01-01"], "M8[D]")), "E-NPZ-DTYPE"),
    (71, "time-spans", saved(np.array([1], "m8[ns]")), "E-NPZ-DTYPE"),
    (71, "long-double", saved(np.ones(2, np.longdouble)), "E-NPZ-DTYPE"),
    (71, "long-complex", saved(np.ones(2, np.clongdouble)), "E-NPZ-DTYPE"),
    (71, "void-of-3", saved(np.zeros(2, "V3")), "E-NPZ-DTYPE"),
    (71, "void-of-1", saved(np.zeros(2, "V1")), "E-NPZ-VOID"),
    (71, "unknown-code", descr("'<q8'"), "E-NPZ-DTYPE"),
    (71, "no-code", descr("'<<f8'"), "E-NPZ-HEADER"),
    (71, "code-that-is-a-call", descr("'f8'.__class__"), "E-NPZ-HEADER"),
    (71, "escaped-code", descr("'\\x4f'"), "E-NPZ-HEADER"),
    (71, "joined-code", descr("'' 'O'"), "E-NPZ-HEADER"),
    (72, "not-a-literal", npy("__import__('os').system('true')"), "E-NPZ-HEADER"),
    (72, "3000-parentheses", shape("(" * 3000 + ")" * 3000), "E-NPZ-HEADER"),
    (72, "3000-brackets", npy("[" * 3000), "E-NPZ-HEADER"),
    (72, "a-list", npy("[1, 2]"), "E-NPZ-HEADER"),
    (72, "empty", npy(""), "E-NPZ-HEADER"),
    (72, "not-closed", npy(RIGHT[:-1]), "E-NPZ-HEADER"),
    (72, "more-after-it", npy(RIGHT + " 1"), "E-NPZ-HEADER"),
    (72, "key-missing", npy("{'descr': '<f8', 'shape': (2,), }"), "E-NPZ-HEADER"),
    (72, "key-too-many", npy(RIGHT[:-1] + "'x': 'y'}"), "E-NPZ-HEADER"),
    (72, "64-KiB", npy(RIGHT.ljust(1 << 16) + "\n", version=(2, 0)), "E-NPZ-HEADER-LENGTH"),
    (72, "header-of-4-GiB", npy(version=(2, 0), length=(1 << 32) - 1), "E-NPZ-HEADER-LENGTH"),
    (72, "header-longer-than-the-file", npy(length=200), "E-NPZ-HEADER-LENGTH"),
    (72, "no-length", b"\x93NUMPY\1\0", "E-NPZ-HEADER-LENGTH"),
    (72, "many-quotes", npy("{" + "'" * 60000), "E-NPZ-HEADER"),
    (72, "many-keys", npy("{" + "'a':True," * 7000 + "}"), "E-NPZ-HEADER"),
    (72, "order-is-a-number", npy(RIGHT.replace("False", "0")), "E-NPZ-HEADER"),
    (73, "4-TiB", shape(f"({1 << 39},)"), "E-NPZ-SIZE"),
    (73, "2^63-elements", shape(f"({1 << 62}, 2)"), "E-NPZ-SHAPE"),
    (73, "2^64-elements-wrap", shape(f"({1 << 32}, {1 << 32})"), "E-NPZ-SHAPE"),
    (73, "zero-times-2^63", shape(f"(0, {1 << 62}, {1 << 62})", b""), "E-NPZ-SHAPE"),
    (73, "4300-digits", shape("(" + "9" * 4300 + ",)"), "E-NPZ-SHAPE"),
    (73, "65-dimensions", shape("(" + "1, " * 65 + ")", bytes(8)), "E-NPZ-SHAPE"),
    (73, "20000-dimensions", shape("(" + "1, " * 20000 + ")", bytes(8)), "E-NPZ-SHAPE"),
    (73, "one-element-short", npy(data=bytes(8)), "E-NPZ-SIZE"),
    (73, "one-byte-long", npy(data=bytes(17)), "E-NPZ-SIZE"),
    (73, "two-arrays", saved(np.arange(3)) * 2, "E-NPZ-SIZE"),
    (74, "negative-dimension", shape("(-2,)"), "E-NPZ-SHAPE"),
    (74, "two-negative-dimensions", shape("(-1, -2)"), "E-NPZ-SHAPE"),
    (74, "bool-dimension", shape("(True, 2)"), "E-NPZ-SHAPE"),
    (74, "float-dimension", shape("(2.0,)"), "E-NPZ-SHAPE"),
    (74, "hexadecimal-dimension", shape("(0x2,)"), "E-NPZ-SHAPE"),
    (74, "dimension-with-underscore", shape("(1_0,)"), "E-NPZ-SHAPE"),
    (74, "no-tuple", shape("(2)"), "E-NPZ-SHAPE"),
    (74, "only-a-comma", shape("(,)"), "E-NPZ-SHAPE"),
    (74, "a-list", shape("[2]"), "E-NPZ-HEADER"),
    (74, "a-number", shape("2"), "E-NPZ-HEADER"),
    (74, "key-twice", npy(RIGHT[:-1] + "'shape': (2,)}"), "E-NPZ-HEADER"),
    (75, "fortran", npy(RIGHT.replace("False", "True")), ""),
    (75, "big-endian", descr("'>f8'"), ""),
    (75, "python-2", shape("(2L,)"), ""),
    (75, "other-quotes-and-order", npy('{"shape":(2,),"fortran_order":False,"descr":"<f8"}'), ""),
    (75, "version-2", npy(version=(2, 0)), ""),
    (75, "version-3", npy(version=(3, 0)), ""),
    (76, "version-4", npy(version=(4, 0)), "E-NPZ-VERSION"),
    (76, "version-1.1", npy(version=(1, 1)), "E-NPZ-VERSION"),
    (76, "version-0", npy(version=(0, 0)), "E-NPZ-VERSION"),
]


def zip_of(data):
    return zipped({"good.npy": saved(np.zeros(3)), "folder/bad.npy": data}, zipfile.ZIP_DEFLATED)


@pytest.mark.parametrize(("number", "name", "data", "code"), HOSTILE, ids=[f"{row[0]}-{row[1]}" for row in HOSTILE])
@pytest.mark.parametrize(("suffix", "made"), [(".npy", bytes), (".npz", zip_of)], ids=["npy", "npz"])
def test_hostile(number, name, data, code, suffix, made, tmp_path, sandbox):
    path = tmp_path / f"x{suffix}"
    path.write_bytes(made(data))
    outcome = sandbox.outcome(path)
    assert (outcome.code, outcome.quick) == (code, True), outcome
    if code:
        assert (outcome.file, outcome.offset is None, bool(outcome.hint)) == (str(path), False, True), outcome
        assert suffix == ".npy" or "'folder/bad'" in outcome.detail


BAD_ARCHIVES = [
    (76, "bad-magic", zipped({"good.npy": saved(np.zeros(3)), "x.npy": npy(magic=b"\x93NUMPX")}), "E-NPZ-MAGIC"),
    (76, "no-magic", zipped({"x.npy": b""}), "E-NPZ-MAGIC"),
    (74, "one-name-twice", zipped({"x.npy": saved(np.zeros(3)), "x": saved(np.zeros(3))}), "E-NPZ-TWICE"),
    (71, "objects-without-suffix", zipped({"x.npy": saved(np.zeros(3)), "y": OBJECTS}), "E-NPZ-PICKLE"),
    (72, "metadata-no-json", zipped({"x.npy": saved(np.zeros(3)), "__metadata__.json": b"{"}), "E-NPZ-METADATA"),
    (
        72,
        "metadata-no-strings",
        zipped({"x.npy": saved(np.zeros(3)), "__metadata__.json": b'{"a": 1}'}),
        "E-NPZ-METADATA",
    ),
    (72, "metadata-nested", zipped({"__metadata__.json": b"[" * 100_000}), "E-LIMIT-DEPTH"),
    (77, "bomb", zipped({"x.npy": saved(np.zeros(1 << 20))}, zipfile.ZIP_DEFLATED), "E-ZIP-RATIO"),
    (20, "empty-archive", zipped({}), ""),
    (20, "other-member", zipped({"x.npy": saved(np.zeros(3)), "readme.txt": b"text"}), ""),
]


@pytest.mark.parametrize(
    ("number", "name", "data", "code"), BAD_ARCHIVES, ids=[f"{row[0]}-{row[1]}" for row in BAD_ARCHIVES]
)
def test_hostile_archives(number, name, data, code, tmp_path, sandbox):
    path = tmp_path / "x.npz"
    path.write_bytes(data)
    outcome = sandbox.outcome(path)
    assert (outcome.code, outcome.quick) == (code, True), outcome
    if code:
        assert outcome.hint


def opened(path):
    """What a file opens as, None where it is refused with one of our errors."""
    try:
        graph = cc.open(path)
        return {name: (tensor.dtype, tensor.shape, bytes(tensor.raw())) for name, tensor in graph.weights.items()}
    except cc.Error as error:
        assert error.file == str(path)
        assert error.hint
        return None


def samples():
    compressed = io.BytesIO()
    np.savez_compressed(compressed, a=np.asfortranarray(patterns("f", 3, 4)), b=patterns(">d", 3))
    return [saved(patterns("D", 2, 3)), zipped({"x.npy": saved(patterns("e", 5)), "y": b"text"}), compressed.getvalue()]


@pytest.mark.parametrize("number", range(3))
def test_truncated_and_changed_anywhere(number, tmp_path):
    data, path = samples()[number], tmp_path / ("x.npz" if number else "x.npy")
    for length in range(len(data)):
        path.write_bytes(data[:length])
        assert opened(path) is None, length
    dice = random.Random(number)
    for _ in range(400):
        changed = bytearray(data)
        for _ in range(dice.choice((1, 1, 3))):
            changed[dice.randrange(len(data))] = dice.randrange(256)
        path.write_bytes(changed)
        opened(path)


WORDS = [
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    ",",
    ":",
    " ",
    "\n",
    "'",
    '"',
    "-",
    "1",
    "2",
    "2L",
    "03",
    "True",
    "False",
    "None",
    "'descr'",
    "'shape'",
]
WORDS += [
    "'fortran_order'",
    "'<f8'",
    "'>f8'",
    "'|b1'",
    "'O'",
    "'<U4'",
    "(2,)",
    "(1, 2)",
    "()",
    "(2)",
    "'descr': '<f8'",
    "'shape': (2,)",
]
WORDS += ["\\", "é", "#"]
HEADERS = st.one_of(
    st.lists(st.sampled_from(WORDS), max_size=12).map("".join),
    st.permutations(["'descr': '<f8'", "'fortran_order': False", "'shape': (2,)"]).map(
        lambda items: "{" + ", ".join(items) + "}"
    ),
    st.builds(
        lambda where, what: RIGHT[:where] + what + RIGHT[where:], st.integers(0, len(RIGHT)), st.sampled_from(WORDS)
    ),
    st.builds(lambda where, size: RIGHT[:where] + RIGHT[where + size :], st.integers(0, len(RIGHT)), st.integers(1, 9)),
)


@settings(max_examples=400)
@given(text=HEADERS, version=st.sampled_from([(1, 0), (2, 0), (3, 0)]))
def test_headers_mean_what_numpy_takes_them_for(text, version, tmp_path):
    """A header that we accept is one that numpy accepts, and it says the same."""
    path = tmp_path / "x.npy"
    path.write_bytes(npy(text, version=version))
    ours = opened(path)
    if ours is not None:
        theirs = np.load(path, allow_pickle=False)
        assert_same(theirs, cc.open(path)["x"])

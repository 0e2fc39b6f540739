"""Made-up structures: headers, members, keys and opcodes that are nearly right. Only our errors come out, and what
opens is what others read."""

import io
import json
import pickletools
import struct
import warnings
import zipfile

import candle_convert as cc
import numpy as np
import pytest
import safetensors
from candle_convert.runtime.tensor.dtype import BY_SAFETENSORS
from candle_convert.tests.builders.gguf_files import NAMES, Maker
from candle_convert.tests.builders.sampling import full
from candle_convert.tests.fuzz.sandbox import attempt
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

FULL = full()
FUZZ = {"max_examples": 5000 if FULL else 150, "suppress_health_check": list(HealthCheck)}
COUNTS = st.one_of(st.integers(0, 9), st.sampled_from([-1, 1 << 31, 1 << 32, (1 << 63) - 1, 1 << 63, 1 << 64]))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("structures")


TEXT = st.text(max_size=4)
JSON = st.recursive(
    st.none() | st.booleans() | COUNTS | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner),
)
DTYPES = st.sampled_from([*BY_SAFETENSORS, "F128", "f32", ""])


@st.composite
def headers(draw):
    """Tensors that lie one behind the other, of which some keys or numbers may be others."""
    header, at = {}, 0
    for number in range(draw(st.integers(0, 3))):
        name, shape = (
            draw(st.sampled_from(["F32", "U8", "F4", "F64", "BOOL"])),
            draw(st.lists(st.integers(0, 3), max_size=3)),
        )
        size = int(np.prod(shape, dtype=int)) * BY_SAFETENSORS[name].bits // 8
        header[f"t{number}"] = {"dtype": name, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    for entry in list(header.values()):
        if draw(st.integers(0, 4)) == 0:
            entry[draw(st.sampled_from(["dtype", "shape", "data_offsets", "more"]))] = draw(
                st.one_of(JSON, DTYPES, st.lists(COUNTS, max_size=3))
            )
    if draw(st.booleans()):
        header["__metadata__"] = draw(st.one_of(st.dictionaries(st.text(max_size=4), st.text(max_size=4)), JSON))
    return header, at + draw(st.sampled_from([0, 0, 0, 1, -1]))


@settings(**FUZZ)
@given(made=headers(), spaces=st.integers(0, 8))
def test_safetensors_headers_are_never_read_more_loosely_than_by_the_library(folder, made, spaces):
    header, size = made
    text = json.dumps(header).encode() + b" " * spaces
    data = struct.pack("<Q", len(text)) + text + bytes(max(0, size))
    path = folder / "x.safetensors"
    path.write_bytes(data)
    if attempt(path) is None:
        theirs = {
            name: (entry["dtype"], entry["shape"], bytes(entry["data"]))
            for name, entry in safetensors.deserialize(data)
        }
        ours = cc.open(path).weights
        assert theirs == {
            name: (tensor.dtype.safetensors, list(tensor.shape), bytes(tensor.raw())) for name, tensor in ours.items()
        }


@settings(**FUZZ)
@given(value=JSON)
def test_any_json_is_a_header_or_an_error(folder, value):
    text = json.dumps(value).encode()
    path = folder / "x.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text)
    attempt(path)


NPY_VALUES = st.sampled_from(
    [
        "'<f4'",
        "'>i2'",
        "'|b1'",
        "'|O'",
        "'<U4'",
        "'<M8'",
        "[('a', '<f4')]",
        "True",
        "False",
        "None",
        "()",
        "(2,)",
        "(2, 3)",
        "(-1,)",
        "[2]",
        "(" * 300 + ")" * 300,
        "(1,) * 9",
        "(2.0,)",
        "(1 << 60,)",
        "(True,)",
        "__import__('os')",
        "lambda: 0",
        "(9" + "9" * 40 + ",)",
    ]
)
NPY_KEYS = st.sampled_from(["'descr'", "'fortran_order'", "'shape'", "'more'", "1"])


@settings(**FUZZ)
@given(
    pairs=st.lists(st.tuples(NPY_KEYS, NPY_VALUES), max_size=4),
    fixed=st.fixed_dictionaries(
        {}, optional={"'descr'": st.just("'<f4'"), "'fortran_order'": st.just("False"), "'shape'": st.just("(2,)")}
    ),
    version=st.sampled_from([(1, 0), (2, 0), (3, 0), (4, 0), (0, 0)]),
    data=st.binary(max_size=24),
)
def test_npy_headers_are_never_read_more_loosely_than_by_numpy(folder, pairs, fixed, version, data):
    text = ("{" + ", ".join(f"{key}: {value}" for key, value in [*pairs, *fixed.items()]) + ", }\n").encode()
    length = struct.pack("<H" if version[0] == 1 else "<I", len(text))
    path = folder / "x.npy"
    path.write_bytes(b"\x93NUMPY" + bytes(version) + length + text + data)
    if attempt(path) is None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            theirs = np.load(path)
        ours = cc.open(path)["x"].numpy()
        assert (ours.shape, ours.tobytes()) == (theirs.shape, theirs.astype(theirs.dtype.newbyteorder("<")).tobytes())


NAMES_IN_ZIP = st.sampled_from(
    [
        "a.npy",
        "b.npy",
        "ü.npy",
        "a",
        "../a.npy",
        "/a.npy",
        "a\\b.npy",
        "d/",
        "data.pkl",
        "archive/data.pkl",
        "archive/data/0",
        "version",
    ]
)
ARRAY = io.BytesIO()
np.save(ARRAY, np.arange(3, dtype=np.float32))
MEMBERS = st.tuples(
    NAMES_IN_ZIP,
    st.sampled_from([ARRAY.getvalue(), b"", b"x" * 50, b"\x80\x02}."]),
    st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2]),
    st.sampled_from([b"", b"dtype=bf16", b"comment"]),
    st.booleans(),
)


@settings(**FUZZ)
@given(members=st.lists(MEMBERS, max_size=4), comment=st.binary(max_size=9), suffix=st.sampled_from([".npz", ".pth"]))
def test_zip_members_of_any_kind(folder, members, comment, suffix):
    path = folder / f"x{suffix}"
    with zipfile.ZipFile(path, "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        archive.comment = comment
        for name, data, method, note, streamed in members:
            info = zipfile.ZipInfo(name)
            info.compress_type, info.comment = method, note
            if streamed:
                with archive.open(info, "w", force_zip64=True) as file:
                    file.write(data)
            else:
                archive.writestr(info, data)
    if attempt(path) is None and suffix == ".npz":
        theirs = np.load(path)
        for name, tensor in cc.open(path).weights.items():
            assert np.array_equal(tensor.numpy(), theirs[name])


SCALARS = tuple(kind for kind in NAMES if kind not in ("array", "string"))


@settings(**FUZZ)
@given(
    pairs=st.lists(
        st.tuples(st.text(max_size=9), st.sampled_from([*range(15), 1 << 31]), st.binary(max_size=24)), max_size=4
    ),
    infos=st.lists(
        st.tuples(st.text(max_size=9), st.lists(COUNTS, max_size=5), st.sampled_from([*range(45), 1 << 31]), COUNTS),
        max_size=3,
    ),
    counts=st.tuples(st.none() | COUNTS, st.none() | COUNTS),
    version=st.sampled_from([1, 2, 3, 3, 3, 4]),
    big=st.booleans(),
    data=st.binary(max_size=64),
)
def test_gguf_keys_and_tensors_of_any_kind(folder, pairs, infos, counts, version, big, data):
    maker = Maker(version, big)
    limit = 1 << (32 if version == 1 else 64)
    written = [maker.raw_pair(key, kind, payload) for key, kind, payload in pairs]
    tensors = [
        maker.info(name, [length % limit for length in dims], kind, offset % (1 << 64))
        for name, dims, kind, offset in infos
    ]
    n_infos, n_pairs = (None if count is None else count % limit for count in counts)
    path = folder / "x.gguf"
    path.write_bytes(maker.file(written, tensors, data, n_infos, n_pairs))
    attempt(path)


KEYS = st.from_regex(r"[a-z]{1,5}\.[a-z]{1,5}", fullmatch=True)


@settings(**FUZZ)
@given(pairs=st.dictionaries(KEYS, st.integers(0, 127), max_size=5), kind=st.sampled_from(SCALARS), big=st.booleans())
def test_gguf_scalars_of_every_type_and_order(folder, pairs, kind, big):
    maker = Maker(3, big)
    values = {key: number % 2 if kind == "bool" else number for key, number in pairs.items()}
    path = folder / "y.gguf"
    path.write_bytes(maker.file([maker.pair(key, kind, value) for key, value in values.items()]))
    if attempt(path) is None:
        metadata = cc.open(path).metadata
        assert {key: metadata[key] for key in values} == values


OPCODES = [opcode.code.encode("latin-1") for opcode in pickletools.opcodes]
TEXTS = [
    b"cposix\nsystem\n",
    b"ctorch._utils\n_rebuild_tensor_v2\n",
    b"ccollections\nOrderedDict\n",
    b"X\1\0\0\0a",
    b"K\5",
    b"q\0",
    b"h\0",
    b"I1\n",
]


@settings(**FUZZ)
@given(
    parts=st.lists(st.one_of(st.sampled_from(OPCODES), st.sampled_from(TEXTS), st.binary(max_size=4)), max_size=25),
    protocol=st.integers(0, 6),
)
def test_pickle_opcodes_in_any_order(folder, parts, protocol):
    path = folder / "x.pkl"
    path.write_bytes((b"\x80" + bytes([protocol]) if protocol else b"") + b"".join(parts) + b".")
    attempt(path)
    cc.scan(path)

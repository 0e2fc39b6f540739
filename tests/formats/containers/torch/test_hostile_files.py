"""Hostile PyTorch files: each ends in its error code within a second and 64 MiB, and opens nothing."""

import collections
import io
import struct
import zipfile

import candle_convert as cc
import numpy as np
import pytest
import torch
from candle_convert.formats.pytorch import FORMAT
from candle_convert.runtime.base.errors import Error
from candle_convert.runtime.contract.format import ReadOptions
from candle_convert.runtime.tensor.file import Source
from candle_convert.tests.builders.torch_files import (
    Call,
    Stored,
    archive,
    old_tar,
    pickled,
    rebuilt,
    saved,
    stored,
    tarred,
)

pytestmark = pytest.mark.filterwarnings("ignore")
MAGIC = pickled(0x1950A86A20F9469CFC6C)
SYSTEM = pickled({"little_endian": True})
FLOATS = np.arange(4, dtype="<f4").tobytes()
STORAGE = struct.pack("<q", 4) + FLOATS


def stream(value, *, magic=MAGIC, version=1001, keys=("0",), data=STORAGE):
    return magic + pickled(version) + SYSTEM + pickled(value) + pickled(list(keys)) + data


def legacy(**view):
    return rebuilt(stored(torch.FloatStorage, "0", 4, None), **view)


def doublings(count):
    value = [1, [2]]
    for _ in range(count):
        value = [value, value]
    return pickled({"a": value})


def named_doublings(count):
    value = {"w": rebuilt()}
    for _ in range(count):
        value = {"a": value, "b": value}
    return value


def nested_tuples(count):
    return b"\x80\x02)" + b"\x85" * count + b"."


def ids(value):
    return pickled(Stored(*value)) if isinstance(value, tuple) else b"\x80\x02" + value + b"Q."


def scalar_quantized(scheme):
    storage = stored(torch.QInt8Storage)
    return Call(torch._utils._rebuild_qtensor, storage, 0, (4,), (1,), scheme, False, collections.OrderedDict())


def nested_quantized(count):
    """Scales that are quantized tensors with scales that are ..."""
    made = rebuilt()
    for _ in range(count):
        made = scalar_quantized((torch.per_channel_affine, made, made, 0))
    return made


def flags_set(data):
    """A central directory that says every member is encrypted."""
    changed = bytearray(data)
    at = changed.index(b"PK\1\2")
    changed[at + 8] |= 1
    return bytes(changed)


def crc_changed(data):
    changed = bytearray(data)
    changed[changed.index(b"\x80\x02") + 3] ^= 1
    return bytes(changed)


def zipped(members, method=zipfile.ZIP_STORED):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as file:
        for name, data in members.items():
            file.writestr(name, data)
    return out.getvalue()


ONE = {"a": rebuilt()}
META = Call(torch._utils._rebuild_meta_tensor_no_storage, torch.float32, (2,), (1,), False)
SHELL = Call(torch._utils._rebuild_tensor_v3, stored(torch.UntypedStorage), 0, (4,), (1,), False, {}, torch.uint4)
SELF = pickled({"a": 1}).replace(b"K\x01", b"h\x00")
TAR = old_tar()
HOSTILE = [
    (50, "no-end-record", archive(ONE)[:-10], "E-ZIP-END"),
    (53, "encrypted-flag", flags_set(archive(ONE)), "E-ZIP-"),
    (53, "crc", crc_changed(archive(ONE)), "E-ZIP-CRC"),
    (
        54,
        "deflated",
        zipped({"archive/data.pkl": pickled(ONE), "archive/data/0": FLOATS}, zipfile.ZIP_DEFLATED),
        "E-ZIP-DEFLATED",
    ),
    (56, "short-storage", archive(ONE, {"0": FLOATS[:12]}), "E-PTH-STORAGE"),
    (56, "no-storage", archive(ONE, {"1": FLOATS}), "E-PTH-STORAGE"),
    (56, "past-the-end", archive(rebuilt(size=(5,))), "E-PTH-STORAGE"),
    (56, "offset-past-the-end", archive(rebuilt(offset=1)), "E-PTH-STORAGE"),
    (56, "stride-past-the-end", archive(rebuilt(size=(2, 2), stride=(4, 1))), "E-PTH-STORAGE"),
    (56, "negative-stride", archive(rebuilt(stride=(-1,))), "E-PTH-VIEW"),
    (56, "negative-offset", archive(rebuilt(offset=-1)), "E-PTH-VIEW"),
    (56, "negative-size", archive(rebuilt(size=(-4,))), "E-PTH-VIEW"),
    (56, "bool-size", archive(rebuilt(size=(True,))), "E-PTH-VIEW"),
    (56, "float-size", archive(rebuilt(size=(4.0,))), "E-PTH-VIEW"),
    (56, "size-2^61", archive(rebuilt(size=(1 << 61,), stride=(0,))), "E-PTH-VIEW"),
    (56, "dimensions", archive(rebuilt(size=(1,) * 65, stride=(1,) * 65)), "E-PTH-VIEW"),
    (56, "sizes-and-strides", archive(rebuilt(size=(2, 2), stride=(1,))), "E-PTH-VIEW"),
    (56, "count-2^62", archive(rebuilt(stored(count=1 << 62))), "E-PKL-PERSISTENT"),
    (56, "negative-count", archive(rebuilt(stored(count=-1))), "E-PKL-PERSISTENT"),
    (58, "byteorder", archive(ONE, byteorder=b"middle"), "E-PTH-BYTEORDER"),
    (59, "magic", stream({"a": legacy()}, magic=pickled(0x1950A86A20F9469CFC6D)), "E-PTH-MAGIC"),
    (59, "version", stream({"a": legacy()}, version=1002), "E-PTH-VERSION"),
    (59, "stream-short", stream({"a": legacy()}, data=STORAGE[:-1]), "E-PTH-STORAGE"),
    (59, "stream-count-2^62", stream({"a": legacy()}, data=struct.pack("<q", 1 << 62) + FLOATS), "E-PTH-STORAGE"),
    (59, "stream-count-negative", stream({"a": legacy()}, data=struct.pack("<q", -1) + FLOATS), "E-PTH-STORAGE"),
    (59, "stream-no-count", stream({"a": legacy()}, data=b""), "E-IO-TRUNCATED"),
    (59, "stream-trailing", stream({"a": legacy()}, data=STORAGE + b"x"), "E-PTH-TRAILING"),
    (59, "stream-unknown-key", stream({"a": legacy()}, keys=("0", "9")), "E-PTH-KEYS"),
    (59, "stream-key-twice", stream({"a": legacy()}, keys=("0", "0")), "E-PTH-KEYS"),
    (59, "stream-key-missing", stream({"a": legacy()}, keys=(), data=b""), "E-PTH-STORAGE"),
    (59, "stream-view", stream({"a": rebuilt(stored(torch.FloatStorage, "0", 4, ("1", 2, 3)))}), "E-PTH-VIEW"),
    (59, "tar-member-missing", tarred({name: TAR[name] for name in ("pickle", "storages")}), "E-PTH-TAR"),
    (59, "tar-cut", tarred(TAR)[:2000], "E-TAR-TRUNCATED"),
    (59, "tar-storage-short", tarred(TAR | {"storages": TAR["storages"][:60]}), "E-"),
    (59, "tar-tensor-short", tarred(TAR | {"tensors": TAR["tensors"][:-60]}), "E-"),
    (59, "tar-unknown-tensor", tarred(TAR | {"pickle": pickled(Stored("9"))}), "E-PKL-PERSISTENT"),
    (64, "memo-bomb", archive(doublings(30)), "E-PKL-NODES"),
    (64, "memo-bomb-of-tensors", archive(named_doublings(30)), "E-PKL-NODES"),
    (64, "memo-bomb-of-records", archive({"a": [named_doublings(4)] * 5000}), "E-PKL-NODES"),
    (65, "marks", archive(b"\x80\x02" + b"(" * 200_000 + b"."), "E-PKL-DEPTH"),
    (65, "nested-tuples", archive(nested_tuples(200_000)), "E-LIMIT-DEPTH"),
    (
        65,
        "nested-parameters",
        archive(b"\x80\x02" + b"ctorch._utils\n_rebuild_parameter\n" * 1000 + b"N" + b"\x85R" * 1000 + b"."),
        "E-PTH-TENSOR",
    ),
    (67, "no-stop", archive(pickled(ONE)[:-1]), "E-PKL-TRUNCATED"),
    (67, "after-stop", archive(pickled(ONE) + b"x"), "E-PKL-TRAILING"),
    (67, "empty-pickle", archive(b""), "E-PKL-TRUNCATED"),
    (68, "second-pickle", archive(pickled(ONE) * 2), "E-PKL-TRAILING"),
    (68, "persistent-text", archive(ids(b"X\1\0\0\0a")), "E-PKL-PERSISTENT"),
    (68, "persistent-kind", archive(ids(("module", torch.FloatStorage, "0", "cpu", 4))), "E-PKL-PERSISTENT"),
    (68, "persistent-class", archive(ids(("storage", torch.Size, "0", "cpu", 4))), "E-PKL-PERSISTENT"),
    (68, "persistent-key", archive(ids(("storage", torch.FloatStorage, (), "cpu", 4))), "E-PKL-PERSISTENT"),
    (
        61,
        "record-as-tensor",
        archive(Call(torch._utils._rebuild_parameter, Call(collections.OrderedDict), True, {})),
        "E-PTH-TENSOR",
    ),
    (61, "number-as-storage", archive(rebuilt(3)), "E-PTH-STORAGE-ID"),
    (61, "too-few-arguments", archive(Call(torch._utils._rebuild_tensor_v2, stored())), "E-PTH-TENSOR"),
    (0, "sparse", saved(torch.eye(2).to_sparse()), "E-PTH-KIND"),
    (0, "sparse-csr", saved(torch.eye(2).to_sparse_csr()), "E-PTH-KIND"),
    (0, "meta", archive(META), "E-PTH-KIND"),
    (0, "shell-dtype", archive(SHELL), "E-PTH-DTYPE"),
    (0, "quantized-no-scheme", archive(scalar_quantized(())), "E-PTH-QUANTIZED"),
    (0, "quantized-zero-point", archive(scalar_quantized((torch.per_tensor_affine, 1.0, 1 << 40))), "E-PTH-QUANTIZED"),
    (
        0,
        "quantized-axis",
        archive(scalar_quantized((torch.per_channel_affine, [1.0] * 4, [0] * 4, 1))),
        "E-PTH-QUANTIZED",
    ),
    (
        0,
        "quantized-scales",
        archive(scalar_quantized((torch.per_channel_affine, [1.0] * 3, [0] * 4, 0))),
        "E-PTH-QUANTIZED",
    ),
    (0, "quantized-of-quantized", archive(nested_quantized(100)), "E-PTH-TENSOR"),
    (0, "two-pickles", zipped({"one/data.pkl": pickled(ONE), "two/data.pkl": pickled(ONE)}), "E-PTH-ARCHIVE"),
    (0, "long-key", archive({"x" * 5000: rebuilt()}), "E-PKL-NAME"),
    (60, "code", archive(b"\x80\x02cposix\nsystem\nX\x02\0\0\0id\x85R."), "E-PKL-GLOBAL"),
]


@pytest.mark.parametrize(("number", "name", "data", "code"), HOSTILE, ids=[f"{row[0]}-{row[1]}" for row in HOSTILE])
def test_hostile(number, name, data, code, tmp_path, sandbox):
    path = tmp_path / "x.pth"
    path.write_bytes(data)
    outcome = sandbox.outcome(path)
    assert outcome.code.startswith(code), outcome
    assert outcome.code
    assert outcome.quick, outcome
    assert outcome.file is not None
    assert outcome.file.startswith(str(path))
    assert outcome.hint


def test_expanded_tensors_of_2_to_the_40_elements_open_lazily(tmp_path, sandbox):
    path = tmp_path / "x.pth"
    path.write_bytes(archive(rebuilt(size=(1 << 20, 1 << 20), stride=(0, 0))))
    assert sandbox.outcome(path).code == ""
    tensor = cc.open(path)["value"]
    assert tensor.shape == (1 << 20, 1 << 20)
    assert tensor[5][:3].numpy().tolist() == [0.0, 0.0, 0.0]


def test_archives_of_something_else_are_named(tmp_path):
    path = tmp_path / "x.pth"
    path.write_bytes(archive(ONE).replace(b"data.pkl", b"data.txt"))
    assert not FORMAT.sniff(Source(path))
    with pytest.raises(cc.FormatError, match="E-PTH-ARCHIVE"):
        FORMAT.read(Source(path), ReadOptions())
    with pytest.raises(cc.FormatError):
        cc.open(path)


def test_large_counts_in_stream_and_storage_are_not_allocated(tmp_path, sandbox):
    path = tmp_path / "x.pth"
    path.write_bytes(archive({"w": rebuilt(stored(count=1 << 50))}))
    assert sandbox.outcome(path).code == "E-PTH-STORAGE"


SAMPLES = {
    "zip": saved({"state_dict": {"a": torch.ones(2, 3), "b": torch.ones(2).t()}, "epoch": 1}),
    "stream": saved({"a": torch.ones(2, 3), "n": 1}, _use_new_zipfile_serialization=False),
    "tar": tarred(old_tar()),
}


def outcome(path):
    try:
        for tensor in cc.open(path).weights.values():
            tensor.raw()
    except Error as error:
        return error
    return None


@pytest.mark.parametrize("name", SAMPLES)
def test_truncated_files_end_in_our_errors(name, tmp_path):
    path = tmp_path / "x.pth"
    for stop in range(0, len(SAMPLES[name]), 1 + len(SAMPLES[name]) // 400):
        path.write_bytes(SAMPLES[name][:stop])
        error = outcome(path)
        assert error is not None or (name == "tar" and not SAMPLES[name][stop:].strip(b"\0")), stop


@pytest.mark.parametrize("name", SAMPLES)
def test_changed_files_end_in_our_errors_or_open(name, tmp_path):
    path = tmp_path / "x.pth"
    places = np.random.default_rng(0).integers(0, len(SAMPLES[name]), 300)
    for place, bit in zip(places, range(len(places)), strict=True):
        changed = bytearray(SAMPLES[name])
        changed[place] ^= 1 << bit % 8
        path.write_bytes(changed)
        outcome(path)

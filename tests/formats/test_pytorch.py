"""Reading PyTorch files: torch is the oracle for every container, dtype and view."""

import collections
import io
import pickle
import pickletools
import struct
import zipfile

import candle_convert as cc
import numpy as np
import pytest
import torch
from candle_convert.formats.pytorch import FORMAT
from candle_convert.runtime.contract.format import ReadOptions
from candle_convert.runtime.tensor.file import Source
from candle_convert.tests.builders.torch_files import (
    METADATA,
    archive,
    assert_same,
    bits,
    checkpoint,
    findings,
    old_tar,
    patterns,
    pickled,
    quantized,
    rebuilt,
    rewritten,
    saved,
    state,
    stored,
    tarred,
)

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(params=[True, False], ids=["zip", "stream"])
def save(request):
    """torch.save in its two formats."""
    return lambda value, path: torch.save(value, path, _use_new_zipfile_serialization=request.param)


def test_state_dicts_of_every_kind(save, tmp_path):
    save(state(), tmp_path / "a.pth")
    assert_same(state(), cc.open(tmp_path / "a.pth"))
    assert not findings(tmp_path / "a.pth")


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_every_pickle_protocol_that_torch_can_use(protocol, tmp_path):
    values = {"a": torch.ones(2), "b": patterns(torch.uint16, 3), "c": torch.nn.Parameter(torch.ones(1))}
    torch.save(values, tmp_path / "a.pth", pickle_protocol=protocol)
    assert_same(values, cc.open(tmp_path / "a.pth"))


class Labelled(torch.Tensor):
    pass


def test_subclasses_of_tensors_are_read_when_their_name_is_allowed(tmp_path):
    torch.save({"a": torch.ones(2).as_subclass(Labelled)}, tmp_path / "a.pth")
    with pytest.raises(cc.UnsafeFileError, match="E-PKL-GLOBAL"):
        cc.open(tmp_path / "a.pth")
    graph = FORMAT.read(Source(tmp_path / "a.pth"), ReadOptions(allow_globals=frozenset({f"{__name__}.Labelled"})))
    assert_same({"a": torch.ones(2)}, graph)


def test_tensors_pickled_without_torch_save_are_told_how_to_be_saved(tmp_path):
    (tmp_path / "a.pkl").write_bytes(pickle.dumps({"a": torch.ones(2)}))
    with pytest.raises(cc.UnsafeFileError) as caught:
        cc.open(tmp_path / "a.pkl")
    assert "torch.save(model.state_dict()" in caught.value.hint


def test_quantized_tensors_have_the_values_that_torch_gives_them(save, tmp_path):
    save(quantized(), tmp_path / "q.pth")
    graph = cc.open(tmp_path / "q.pth")
    assert_same(quantized(), graph)
    assert {note.tensor for note in graph.notes if note.code == "W-DEQUANTIZED"} == set(quantized())
    assert not findings(tmp_path / "q.pth")


def test_quantized_tensors_are_read_by_range(tmp_path):
    torch.save(quantized(), tmp_path / "q.pth")
    for name, tensor in cc.open(tmp_path / "q.pth").weights.items():
        whole = bytes(tensor.raw())
        assert b"".join(map(bytes, tensor.chunks(1))) == whole, name
        assert tensor.unit <= 16


def test_shared_storages_are_known_to_be_shared(save, tmp_path):
    weight = torch.randn(4, 4)
    save({"embed": weight, "head": weight, "half": weight[:2]}, tmp_path / "tied.pth")
    graph = cc.open(tmp_path / "tied.pth")
    assert graph["embed"].storage.key == graph["head"].storage.key != graph["half"].storage.key


def test_tensors_are_regions_of_the_file(save, tmp_path):
    weight = torch.randn(4, 4)
    save({"w": weight, "rows": weight[1:3]}, tmp_path / "a.pth")
    assert [type(tensor.storage).__name__ for tensor in cc.open(tmp_path / "a.pth").weights.values()] == [
        "Region",
        "Region",
    ]


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 2)
        self.model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
        self.blocks = torch.nn.ModuleList([torch.nn.Linear(2, 2)])
        self.register_buffer("mean", torch.ones(3))
        self.tied = self.linear.weight
        self.numbers = [1, 2]

    def forward(self, x):
        return self.blocks[0](self.model(self.linear(x))) + torch.tensor([1.0, 2.0])


@pytest.mark.parametrize(
    "make", [torch.jit.script, lambda net: torch.jit.trace(net.eval(), torch.zeros(1, 3))], ids=["script", "trace"]
)
def test_torchscript_parameters(make, tmp_path):
    module = make(Net())
    torch.jit.save(module, tmp_path / "s.pt")
    graph = cc.open(tmp_path / "s.pt")
    expected = module.state_dict()
    assert set(graph.weights) == set(expected)
    for name, tensor in expected.items():
        assert bytes(graph[name].raw()) == bits(tensor)
    assert [(finding.code, finding.severity) for finding in findings(tmp_path / "s.pt")] == [("W-PTH-CODE", "info")]


class Gain(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.factor, self.names, self.grid = torch.nn.Parameter(torch.ones(2)), {0: "cat"}, torch.ones(5)
        self.register_buffer("mask", torch.ones(2), persistent=False)


def test_whole_modules_of_torch(save, tmp_path):
    net = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    save(net, tmp_path / "m.pth")
    assert_same(net.state_dict(), cc.open(tmp_path / "m.pth"))
    assert not findings(tmp_path / "m.pth")


def test_other_modules_are_refused_and_readable_when_allowed(save, tmp_path):
    save(Gain(), tmp_path / "m.pth")
    with pytest.raises(cc.UnsafeFileError) as caught:
        cc.open(tmp_path / "m.pth")
    name = f"{Gain.__module__}.Gain"
    assert name in caught.value.message
    assert [finding.code for finding in findings(tmp_path / "m.pth")] == ["E-PKL-GLOBAL"]
    graph = FORMAT.read(Source(tmp_path / "m.pth"), ReadOptions(allow_globals=frozenset({name})))
    assert_same(Gain().state_dict(), graph)
    assert graph.metadata == {"names.0": "cat"}


def test_weights_are_found_and_the_rest_is_metadata(save, tmp_path):
    made = checkpoint()
    save(made, tmp_path / "c.ckpt")
    graph = cc.open(tmp_path / "c.ckpt")
    assert_same(made["state_dict"], graph)
    assert graph.metadata == METADATA
    (note,) = graph.notes
    assert note.code == "W-KEY"
    assert note.message == "weights found under 'state_dict'; others: 'optimizer', 'ema', 'rng'"
    assert not findings(tmp_path / "c.ckpt")


def test_a_key_chooses_the_weights(tmp_path):
    made = checkpoint()
    torch.save(made, tmp_path / "c.ckpt")
    graph = cc.open(tmp_path / "c.ckpt", key="ema.shadow")
    assert_same(made["ema"]["shadow"], graph)
    assert "epoch" in graph.metadata
    assert not graph.notes
    with pytest.raises(cc.UsageError, match="E-PTH-KEY") as caught:
        cc.open(tmp_path / "c.ckpt", key="modle")
    assert "state_dict, optimizer, ema" in caught.value.hint


T = torch.ones(2)
NESTED = [
    ({"state_dict": {"a": T}}, ["a"], "state_dict"),
    ({"model": {"state_dict": {"a": T}}}, ["a"], "model.state_dict"),
    ({"params_ema": {"a": T}, "params": {"a": T}}, ["a"], "params_ema"),
    ({"state_dict": {"a": T, "b": T}, "best": T}, ["a", "b"], "state_dict"),
    ({"encoder": {"a": T}, "decoder": [T, {"b": T}]}, ["encoder.a", "decoder.0", "decoder.1.b"], None),
    ({"model": {"a": T}, "b": T, "c": T}, ["model.a", "b", "c"], None),
    ({"a": T, "epoch": 1}, ["a"], None),
    ([T, T], ["0", "1"], None),
    (T, ["value"], None),
    ({1: T, b"x": T, None: T}, ["1", "x", "None"], None),
    ({}, [], None),
]


@pytest.mark.parametrize(("value", "names", "key"), NESTED, ids=range(len(NESTED)))
def test_nesting(value, names, key, tmp_path):
    torch.save(value, tmp_path / "n.pth")
    graph = cc.open(tmp_path / "n.pth")
    assert list(graph.weights) == names
    assert [note.message.split("'")[1] for note in graph.notes] == ([key] if key else [])


def test_a_dictionary_in_itself_is_cut(tmp_path):
    value = {"a": T}
    value["me"] = value
    torch.save(value, tmp_path / "c.pth")
    graph = cc.open(tmp_path / "c.pth")
    assert list(graph.weights) == ["a"]
    assert "holds itself" in graph.notes[0].message


def test_names_that_meet_when_joined_are_refused(tmp_path):
    torch.save({"a": {"b": T}, "a.b": T}, tmp_path / "c.pth")
    with pytest.raises(cc.FormatError, match="E-PTH-NAME-TWICE"):
        cc.open(tmp_path / "c.pth")


@pytest.mark.parametrize("protocol", range(6))
def test_plain_pickles_of_arrays(protocol, tmp_path):
    arrays = {
        "f4": np.arange(6, dtype="f4").reshape(2, 3),
        "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "big": np.arange(6, dtype=">i2"),
        "complex": (np.arange(3) + 1j).astype(">c8"),
        "long": np.arange(5000.0),
        "bool": np.array([True, False]),
        "empty": np.zeros((0, 3)),
        "scalar": np.array(3, "u2"),
    }
    others = {
        "number": np.float64(2.5),
        "objects": np.array(["x", None], object),
        "texts": np.array(["ab"]),
        "note": "hello",
    }
    (tmp_path / "a.pkl").write_bytes(pickle.dumps(arrays | others, protocol))
    graph = cc.open(tmp_path / "a.pkl")
    assert list(graph.weights) == list(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(graph[name].numpy(), array)
    assert graph.metadata == {"number": np.float64(2.5), "note": "hello"}
    assert [note.code for note in graph.notes] == ["W-DROPPED", "W-DROPPED"]
    assert not findings(tmp_path / "a.pkl")


def test_ml_dtypes_in_pickles(tmp_path):
    import ml_dtypes

    (tmp_path / "a.pkl").write_bytes(pickle.dumps({"w": np.arange(3).astype(ml_dtypes.bfloat16)}))
    assert cc.open(tmp_path / "a.pkl")["w"].dtype.name == "bf16"


def as_python_2(data):
    """A pickle of protocol 2 with every text as the short byte string that Python 2 made of it."""
    out, last = bytearray(), 0
    for opcode, argument, place in pickletools.genops(data):
        if opcode.name == "BINUNICODE":
            text = argument.encode()
            out += data[last:place] + b"U" + bytes([len(text)]) + text
            last = place + 5 + len(text)
    return bytes(out + data[last:])


def test_files_of_python_2(tmp_path):
    stream = io.BytesIO()
    torch.save(
        collections.OrderedDict([("w", torch.arange(3.0)), ("name", "x")]), stream, _use_new_zipfile_serialization=False
    )
    data = stream.getvalue()
    start = data.index(b"\x80\x02ccollections")
    stop = start + 1 + max(place for _, _, place in pickletools.genops(data[start:]))
    path = tmp_path / "py2.pth"
    path.write_bytes(data[:start] + as_python_2(data[start:stop]) + data[stop:].replace(b"X\x0f\0\0\0", b"U\x0f"))
    loaded = torch.load(path, weights_only=False, encoding="latin1")
    graph = cc.open(path)
    assert_same({"w": loaded["w"]}, graph)
    assert graph.metadata == {"name": "x"}


def test_archives_without_byte_order_version_or_usual_folder(tmp_path):
    values = {"a": torch.arange(4.0)}
    path = tmp_path / "a.pth"
    path.write_bytes(rewritten(saved(values), byteorder=None, version=None))
    assert_same(values, cc.open(path))
    path.write_bytes(archive({"a": rebuilt()}, root="some name é"))
    assert_same(values, cc.open(path))


SWAPPED = (
    "float64",
    "float32",
    "float16",
    "bfloat16",
    "int64",
    "int32",
    "int16",
    "int8",
    "uint8",
    "bool",
    "complex64",
    "complex128",
)


def test_big_endian_archives(tmp_path):
    values = {name: patterns(getattr(torch, name), 4, 6) for name in SWAPPED}
    values |= {f"{name}.T": value.T for name, value in values.items()} | {
        f"{name}.row": value[1] for name, value in values.items()
    }
    with zipfile.ZipFile(io.BytesIO(saved(values))) as file:
        width = dict(zip(map(str, range(len(SWAPPED))), (8, 4, 2, 2, 8, 4, 2, 1, 1, 1, 4, 8), strict=True))
        data = {
            key: np.frombuffer(file.read(f"archive/data/{key}"), f"<u{size}").byteswap().tobytes()
            for key, size in width.items()
        }
    path = tmp_path / "big.pth"
    path.write_bytes(
        rewritten(saved(values), byteorder=b"big", **{f"data_{key}": content for key, content in data.items()})
    )
    assert_same(torch.load(path), cc.open(path))
    assert_same(values, cc.open(path))


def test_checksums_that_torch_was_told_to_leave_out(tmp_path):
    torch.serialization.set_crc32_options(False)
    try:
        torch.save({"a": torch.ones(3)}, tmp_path / "a.pth")
    finally:
        torch.serialization.set_crc32_options(True)
    assert_same({"a": torch.ones(3)}, cc.open(tmp_path / "a.pth"))
    assert [finding.severity for finding in findings(tmp_path / "a.pth")] == ["info"]


def test_storage_views_of_the_stream_format(tmp_path):
    data = saved({"a": torch.arange(4.0)}, _use_new_zipfile_serialization=False)
    start = data.index(b"\x80\x02}", data.index(b"type_sizes"))
    whole = rebuilt(stored(torch.FloatStorage, "7", 4, None))
    old = pickled({"a": rebuilt(stored(torch.FloatStorage, "7", 4, ("8", 1, 2)), 0, (2,), (1,)), "b": whole})
    stream = data[:start] + old + pickled(["7"]) + struct.pack("<q4f", 4, 0, 1, 2, 3)
    path = tmp_path / "view.pth"
    path.write_bytes(stream)
    assert_same(torch.load(path), cc.open(path))
    assert_same({"a": torch.tensor([1.0, 2.0]), "b": torch.arange(4.0)}, cc.open(path))


def test_the_tar_format(tmp_path):
    path = tmp_path / "old.pth"
    path.write_bytes(tarred(old_tar()))
    expected = torch.load(path, weights_only=False)
    graph = cc.open(path)
    assert_same(expected, graph)
    assert graph["v"].numpy().tolist() == [3.0, 4.0]
    assert not findings(path)

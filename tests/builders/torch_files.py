"""PyTorch files: values of every kind, archives and streams taken apart and rebuilt, and what torch reads."""

import argparse
import collections
import io
import pathlib
import pickle
import struct
import tarfile
import zipfile

import numpy as np
import torch
from candle_convert.formats.pytorch import FORMAT
from candle_convert.runtime.contract.format import ReadOptions
from candle_convert.runtime.tensor.dtype import BY_TORCH
from candle_convert.runtime.tensor.file import Source

PLAIN_DTYPES = sorted(name for name in BY_TORCH if name != "float4_e2m1fn_x2")


def bits(tensor):
    """The values of a torch tensor as bytes, quantized ones dequantized by torch."""
    tensor = tensor.detach().resolve_conj().resolve_neg()
    tensor = tensor.dequantize() if tensor.is_quantized else tensor.contiguous()
    return tensor.reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def assert_same(expected, graph):
    """Names, order, shapes and every bit."""
    assert list(graph.weights) == list(expected)
    for name, tensor in expected.items():
        ours = graph[name]
        shape = tuple(tensor.shape)
        assert ours.shape == ((*shape[:-1], shape[-1] * 2) if tensor.dtype == torch.float4_e2m1fn_x2 else shape), name
        assert bytes(ours.raw()) == bits(tensor), name


def patterns(dtype, *shape):
    """A tensor of random bits (for bool, of random truth)."""
    size = torch.empty((), dtype=dtype).element_size() * int(np.prod(shape))
    data = torch.randint(0, 256, (size,), dtype=torch.uint8, generator=torch.Generator().manual_seed(size))
    return (data > 127).reshape(shape) if dtype == torch.bool else data.view(dtype).reshape(shape)


def state(new=True):
    """Everything that a state dict can hold."""
    base = torch.randn(6, 8, generator=torch.Generator().manual_seed(1))
    found = {
        "base": base,
        "view": base[1:3, 2:5],
        "row": base[2],
        "transposed": base.T,
        "expanded": base[0].expand(5, 8),
        "stepped": base[::2, ::3],
        "scalar": torch.tensor(3.5),
        "empty": torch.zeros(0, 4),
        "parameter": torch.nn.Parameter(torch.ones(3)),
        "buffer": torch.nn.Buffer(torch.ones(2)),
        "conjugated": patterns(torch.complex64, 3).conj(),
        "negated": patterns(torch.complex128, 3).conj().imag,
    }
    for name in PLAIN_DTYPES:
        found[name] = patterns(getattr(torch, name), 4, 6)
        found[f"{name}.T"] = found[name].T
    if new:
        found["float4_e2m1fn_x2"] = patterns(torch.uint8, 3, 4).view(torch.float4_e2m1fn_x2)
    return found


def quantized():
    """Tensors of every quantized dtype and scheme that torch makes."""
    values = torch.randn(5, 7, generator=torch.Generator().manual_seed(2)) * 3
    found = {}
    for dtype in (torch.qint8, torch.quint8, torch.qint32):
        found[f"{dtype}.tensor"] = torch.quantize_per_tensor(values, 0.0371, 3, dtype)
        for axis, length in enumerate(values.shape):
            scales = torch.linspace(0.01, 0.9, length, dtype=torch.float64)
            found[f"{dtype}.axis{axis}"] = torch.quantize_per_channel(values, scales, torch.arange(length), axis, dtype)
    extremes = torch.tensor([-(2**31), 2**31 - 1, 16777217, -5], dtype=torch.int32)
    found["extremes"] = torch._make_per_tensor_quantized_tensor(extremes, 0.1, -7)
    found["extremes.axis0"] = torch._make_per_channel_quantized_tensor(
        extremes, torch.linspace(0.1, 0.9, 4, dtype=torch.float64), torch.arange(4), 0
    )
    found["view"] = found["torch.qint8.tensor"][1:3, 2:4]
    scales, zeros = torch.linspace(0.1, 0.7, 5), torch.linspace(0, 2, 5)
    for dtype in (torch.quint8, torch.quint4x2, torch.quint2x4):
        found[f"{dtype}.float"] = torch.quantize_per_channel(values, scales, zeros, 0, dtype)
    return found


def ours():
    """A graph with every dtype that torch has, and scalars, zero-size tensors, a non-ASCII name."""
    values = {name: patterns(getattr(torch, name), 4, 6) for name in PLAIN_DTYPES}
    values |= {
        "scalar": torch.tensor(2.5),
        "empty": torch.zeros(0, 3),
        "é.ж": torch.ones(1),
        "float4_e2m1fn_x2": state()["float4_e2m1fn_x2"],
    }
    return values


def checkpoint():
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    return {
        "epoch": 3,
        "state_dict": collections.OrderedDict(model.state_dict()),
        "optimizer": optimizer.state_dict(),
        "ema": {"shadow": model.state_dict()},
        "args": argparse.Namespace(lr=0.1, betas=(0.9, 0.99), path=pathlib.PurePosixPath("/x")),
        "accuracy": np.float32(0.5),
        "config": {"layers": {"sizes": [1, 2], "name": "é"}, 7: "seven"},
        "dtype": torch.float16,
        "device": torch.device("cuda:1"),
        "nothing": None,
        "rng": np.random.RandomState(0).get_state(),
    }


METADATA = {
    "epoch": 3,
    "args.lr": 0.1,
    "args.betas": [0.9, 0.99],
    "args.path": "/x",
    "accuracy": np.float32(0.5),
    "config.layers.sizes": [1, 2],
    "config.layers.name": "é",
    "config.7": "seven",
    "dtype": "torch.float16",
    "device": "cuda:1",
    "nothing": None,
}


def findings(path, **options):
    return list(FORMAT.scan(Source(path), ReadOptions(**options)))


class Stored:
    """A reference, as the pickler is to write it: a tuple for a storage, a text for a tensor of the tar format."""

    def __init__(self, *id):
        self.id = id if len(id) > 1 else id[0]


class Pickler(pickle.Pickler):
    def persistent_id(self, value):
        return value.id if isinstance(value, Stored) else None


class Call:
    """Pickled as a call of `function`."""

    def __init__(self, function, *arguments, state=None):
        self.parts = (function, arguments) if state is None else (function, arguments, state)

    def __reduce__(self):
        return self.parts


def pickled(value, protocol=2):
    out = io.BytesIO()
    Pickler(out, protocol).dump(value)
    return out.getvalue()


def stored(kind=torch.FloatStorage, key="0", count=4, *view):
    return Stored("storage", kind, key, "cpu", count, *view)


def rebuilt(storage=None, offset=0, size=(4,), stride=(1,)):
    return Call(
        torch._utils._rebuild_tensor_v2, storage or stored(), offset, size, stride, False, collections.OrderedDict()
    )


def archive(value, storages=None, root="archive", **members):
    """A zip as torch would write it; `value` may be the pickle's bytes."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        file.writestr(f"{root}/data.pkl", value if isinstance(value, bytes) else pickled(value))
        for name, data in members.items():
            file.writestr(f"{root}/{name}", data)
        for key, data in (storages or {"0": np.arange(4, dtype="f4").tobytes()}).items():
            file.writestr(f"{root}/data/{key}", data)
    return out.getvalue()


def rewritten(data, method=zipfile.ZIP_STORED, **replaced):
    """A torch archive with members replaced or, for None, left out."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w", method) as new:
        for info in old.infolist():
            short = info.filename.partition("/")[2]
            content = replaced.get(short.replace("/", "_"), old.read(info.filename))
            if content is not None:
                new.writestr(info.filename, content)
    return out.getvalue()


def saved(value, **options):
    out = io.BytesIO()
    torch.save(value, out, **options)
    return out.getvalue()


def tarred(members):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:", format=tarfile.PAX_FORMAT) as file:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(data), 1.5
            file.addfile(info, io.BytesIO(data))
    return out.getvalue()


def old_tar():
    """Torch's first format: two storages, a view of one, three tensors, one of them a parameter."""
    numbers = np.arange(6, dtype="f4")
    storages = pickle.dumps(2, 2)
    storages += pickle.dumps((10, "cpu", torch.FloatStorage), 2) + struct.pack("<q", 6) + numbers.tobytes()
    storages += pickle.dumps((11, "cpu", torch.LongStorage), 2) + struct.pack("<q", 2) + np.array([5, 7]).tobytes()
    storages += pickle.dumps([(12, 10, 2, 3)], 2)
    tensors = pickle.dumps(3, 2)
    for key, storage, shape, strides, offset, kind in (
        (1, 10, (3, 2), (1, 3), 0, torch.FloatTensor),
        (2, 11, (2,), (1,), 0, torch.LongTensor),
        (3, 12, (2,), (1,), 1, torch.FloatTensor),
    ):
        tensors += pickle.dumps((key, storage, kind), 2) + struct.pack("<ii", len(shape), 0)
        tensors += struct.pack(f"<{2 * len(shape) + 1}q", *shape, *strides, offset)
    value = {
        "w": Stored("1"),
        "i": Stored("2"),
        "v": Call(torch._utils._rebuild_parameter, Stored("3"), True, collections.OrderedDict()),
    }
    system = {"protocol_version": 1000, "little_endian": True, "type_sizes": {"short": 2, "int": 4, "long": 4}}
    return {"sys_info": pickle.dumps(system, 2), "pickle": pickled(value), "tensors": tensors, "storages": storages}

"""Device memory: weights that sessions share, memory that returns to the pool, and arrays exchanged by DLPack."""

import gc
import tempfile
from pathlib import Path

import candle_convert as cc
import ml_dtypes
import numpy as np
import onnx
import torch
from candle_convert.runtime.cuda.device.device import SIMULATED
from candle_convert.runtime.cuda.memory.device_array import DeviceArray
from candle_convert.runtime.cuda.memory.pool import PoolShare, pool_of
from candle_convert.runtime.cuda.memory.run_memory import uploaded
from candle_convert.runtime.ir.builder import Builder
from candle_convert.runtime.ir.graph import Graph, Value
from candle_convert.runtime.session import Session
from candle_convert.runtime.tensor.dtype import F32, I64
from candle_convert.tests.builders.device_networks import Network

pool = pool_of(0)


def weights_are_there_once(folder):
    """Two sessions of one file, by whatever way it was opened, and runs of many shapes: one copy of the weight, one
    arena."""
    network = Network(0)
    y = network.add("Relu", network.add("Gather", network.weight(128, 160), "x"))
    model = network.model([("x", 7, ["n"])], [(y, 1)])
    onnx.save(model, folder / "m.onnx", save_as_external_data=True, size_threshold=0)
    sessions = [Session(cc.open(folder / "m.onnx"), device="cuda", native=False) for _ in range(2)]
    for session in sessions:
        for rows in (1, 2, 1):
            assert session.run(None, {"x": np.arange(rows)})[0].shape == (rows, 160)
    plans = [plan for session in sessions for plan in session.program.plans]
    assert len(plans) == 4
    assert len({id(weight) for plan in plans for weight in plan.uploaded.values()}) == 1
    base = next(iter(plans[0].uploaded.values())).array
    while isinstance(base, np.ndarray):
        base = base.base
    assert isinstance(base, memoryview), "the file is mapped"
    assert len(pool._arenas) == 1
    assert pool.held - pool.idle_bytes() >= 128 * 160 * 4
    assert pool.held < 2 * 128 * 160 * 4
    print("weights are there once")


def memory_comes_back():
    gc.collect()
    pool.trim()
    assert (pool.held, pool.kept) == (0, 0)
    share = PoolShare(pool)
    one = uploaded(np.ones(100, np.float32), share)
    address = one.address
    del one
    gc.collect()
    assert pool.kept > 0
    assert uploaded(np.zeros(99, np.float32), share).address == address
    print("memory comes back")


def in_place_inputs_keep_their_memory():
    """A state that is written in place from run to run stays the caller's when the array that was fed is gone."""
    graph = Graph()
    fed = [Value("past", F32, (1, 1, 4, 2)), Value("new", F32, (1, 1, 1, 2)), Value("at", I64, (1,))]
    graph.inputs, graph.values = fed, {value.name: value for value in fed}
    graph.outputs = [Builder(graph).add("TensorScatter", fed, {"axis": 2})]
    session = Session(graph, device="cuda", inplace_inputs=["past"])
    state = np.zeros((1, 1, 4, 2), np.float32)
    for step in range(3):
        (state,) = session.run_on_device(
            {"past": state, "new": np.full((1, 1, 1, 2), step + 1, np.float32), "at": np.array([step])}
        )
        gc.collect()
        others = [uploaded(np.full(8, -1, np.float32), session.program.pool) for _ in range(4)]
        assert len({other.address for other in others} | {state.address}) == 5
    assert state.numpy()[0, 0, :, 0].tolist() == [1, 2, 3, 0]
    print("in-place inputs keep their memory")


class Strange:
    """Another library's array."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack__(self, **options):
        return self.tensor.__dlpack__()

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()


class Interface:
    """The same by the other protocol."""

    def __init__(self, tensor):
        self.tensor = tensor

    @property
    def __cuda_array_interface__(self):
        found = dict(self.tensor.__array_interface__) if SIMULATED else self.tensor.__cuda_array_interface__
        return {key: found[key] for key in ("shape", "typestr", "data", "strides", "version")}


def arrays_are_exchanged():
    share = PoolShare(pool)
    for dtype in (np.float32, np.float16, ml_dtypes.bfloat16, np.int64, np.uint8, np.bool_):
        numbers = np.arange(6).reshape(2, 3).astype(dtype)
        ours = uploaded(numbers, share)
        theirs = torch.from_dlpack(ours)
        assert theirs.data_ptr() == ours.address
        assert theirs.float().cpu().numpy().tolist() == numbers.astype(np.float32).tolist()
        back = DeviceArray.wrap(Strange(theirs))
        assert back.address == ours.address
        assert back.numpy().tolist() == numbers.tolist()
        del ours
        gc.collect()
        assert back.numpy().tolist() == numbers.tolist(), "who takes it keeps it"
    transposed = torch.arange(24, dtype=torch.float32).reshape(2, 3, 4).transpose(0, 2)
    transposed = transposed if SIMULATED else transposed.cuda()
    assert DeviceArray.wrap(Strange(transposed)).numpy().tolist() == transposed.tolist()
    host = np.arange(8, dtype=np.float32).reshape(2, 4)
    source = host if SIMULATED else torch.from_numpy(host).cuda()
    assert DeviceArray.wrap(Interface(source)).numpy().tolist() == host.tolist()
    assert DeviceArray.wrap(Interface(source[:, ::2])).numpy().tolist() == host[:, ::2].tolist()
    odd = DeviceArray.wrap(Interface(source.reshape(-1)[1:]))
    assert odd.numpy().tolist() == host.reshape(-1)[1:].tolist()
    assert odd.address % 16 == 0, "kernels read sixteen bytes at a time"
    ours = uploaded(host, share)
    assert DeviceArray.wrap(ours).address == ours.address
    try:
        ours.__dlpack__(dl_device=(99, 0))
    except BufferError:
        print("arrays are exchanged")


with tempfile.TemporaryDirectory() as name:
    weights_are_there_once(Path(name))
memory_comes_back()
in_place_inputs_keep_their_memory()
arrays_are_exchanged()

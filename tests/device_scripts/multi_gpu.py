"""Several GPUs: which one a session uses, and ranks connected by NCCL, with stand-ins for both."""

import contextlib
import sys
import threading
from types import SimpleNamespace

import candle_convert.runtime.cuda.backend as backend
import candle_convert.runtime.cuda.device.graph_capture as capture
import candle_convert.runtime.cuda.execute.graph_replay as replay
import numpy as np
from candle_convert.runtime.base.errors import UsageError
from candle_convert.runtime.cuda.execute.nccl import Nccl
from candle_convert.runtime.cuda.kernel.kernel import DeviceKernel
from candle_convert.runtime.ir.builder import Builder
from candle_convert.runtime.ir.graph import Graph, Value
from candle_convert.runtime.ranks.communicator import join, leave
from candle_convert.runtime.session import Session
from candle_convert.runtime.tensor.dtype import F32
from numba import cuda

CARDS = 2
CURRENT = threading.local()
"""Cards as threads have entered them."""


class Card:
    """A device of a list, which a thread enters and leaves."""

    def __init__(self, number):
        self.id = number
        self.device = self

    def __enter__(self):
        stack = CURRENT.__dict__.setdefault("stack", [])
        stack.append(self.id)

    def __exit__(self, *raised):
        assert CURRENT.stack.pop() == self.id


def current():
    return CURRENT.__dict__.setdefault("stack", []) or [0]


def chain(*steps):
    """One node after another, each a type with its attributes."""
    graph = Graph()
    x = Value("x", F32, (2, 3))
    graph.inputs, graph.values = [x], {"x": x}
    build = Builder(graph)
    for name, attributes in steps:
        x = build.add(name, [x], attributes, domain="candle" if name.startswith("All") else "")
    graph.outputs = [x]
    return graph


def sessions_work_on_their_card():
    """A thread that has entered none launches on the session's; arrays of another card are not taken."""
    cuda.gpus = [Card(number) for number in range(CARDS)]
    cuda.current_context = lambda: cuda.gpus[current()[-1]]
    backend.device_index = lambda device: int(device.partition(":")[2])
    plain, launched = DeviceKernel.launch, []

    def noted(kernel, blocks, arguments, stream=0):
        launched.append(current()[-1])
        plain(kernel, blocks, arguments, stream)

    DeviceKernel.launch = noted
    session, x = Session(chain(("Softmax", {}), ("Relu", {})), device="cuda:1"), np.ones((2, 3), np.float32)
    worker = threading.Thread(target=lambda: session.run(None, {"x": x}))
    worker.start()
    worker.join()
    (there,) = session.run_on_device({"x": x})
    assert launched
    assert set(launched) == {1}
    assert there.owner.number == 1
    try:
        Session(chain(("Softmax", {})), device="cuda:0").run(None, {"x": there})
    except UsageError as error:
        assert error.code == "E-DEVICE-ARRAY"
        print("sessions work on their card")


class Stream:
    """A stream as numba-cuda has it: a number."""

    def __int__(self):
        return 7


class Communicator:
    """Ranks that are threads: each brings an array, and all go on when it is there."""

    held, streams = dict.fromkeys(range(CARDS)), set()
    barrier = threading.Barrier(CARDS)

    @classmethod
    def init(cls, size, rank, identity):
        assert (size, bytes(identity)) == (CARDS, b"us")
        made = cls()
        made.rank = rank
        return made

    def together(self, source, target, join, stream):
        assert source.__cuda_array_interface__["typestr"] == target.__cuda_array_interface__["typestr"] == "<f4"
        self.streams.add(stream)
        self.held[self.rank] = source.numpy()
        self.barrier.wait()
        found = join(list(self.held.values()))
        assert found.size == target.size
        self.barrier.wait()
        target.bytes.copy_to_device(np.ascontiguousarray(found).reshape(-1).view(np.uint8))

    def allreduce(self, source, target, how, *, stream):
        assert how == "sum"
        self.together(source, target, sum, stream)

    def allgather(self, source, target, *, stream):
        self.together(source, target, np.stack, stream)


def ranks_put_arrays_together():
    """Sums and what is gathered, on the host and as steps of plans, captured at the second run."""
    sys.modules["nccl.core"] = SimpleNamespace(
        Communicator=Communicator, UniqueId=SimpleNamespace(from_bytes=bytes), SUM="sum"
    )
    cuda.select_device = lambda number: None
    for name in ("begin", "end", "instantiate", "release"):
        setattr(capture, name, lambda *given: "graph")
    replay._capturing = contextlib.nullcontext()  # these ranks are threads of one process, and wait for each other
    capture.available, capture.stream, capture.launch = (
        (lambda: True),
        (lambda number: Stream()),
        (lambda executable: None),
    )
    arrays = [np.arange(6, dtype=np.float32).reshape(2, 3) + 10 * rank for rank in range(CARDS)]
    total, failed = sum(arrays), []

    def work(rank):
        ranks = Nccl(rank, CARDS, b"us", rank)
        np.testing.assert_array_equal(ranks.all_reduce(arrays[rank]), total)
        np.testing.assert_array_equal(ranks.all_gather(arrays[rank]), np.stack(arrays))
        group = f"of rank {rank}"
        join(group, ranks)
        steps = [
            ("Softmax", {"axis": 0}),
            ("AllReduce", {"group": group}),
            ("Softmax", {"axis": 1}),
            ("AllGather", {"group": group, "ranks": CARDS}),
        ]
        session = Session(chain(*steps), device=f"cuda:{rank}")
        alone = [np.exp(item) / np.exp(item).sum(0) for item in arrays]
        whole = np.exp(sum(alone)) / np.exp(sum(alone)).sum(1, keepdims=True)
        for _ in range(2):
            (found,) = session.run(None, {"x": arrays[rank]})
            np.testing.assert_allclose(found, np.stack([whole] * CARDS), rtol=1e-5)
        assert session.program.runners[0].replays.captured == 1
        leave(group)

    def guarded(rank):
        try:
            work(rank)
        except BaseException as error:
            failed.append(error)
            Communicator.barrier.abort()
            raise

    threads = [threading.Thread(target=guarded, args=(rank,)) for rank in range(CARDS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert Communicator.streams == {0, 7}
    print("ranks put arrays together")


sessions_work_on_their_card()
ranks_put_arrays_together()

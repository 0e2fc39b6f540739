"""Block quantization of slices of several tensors by several threads on few streams. Prints the case, one of CASES.

python encoder_streams.py CASE
"""

import dataclasses
import gc
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor

import ml_dtypes
import numpy as np
from candle_convert.ops.quants.cuda import device_encoder, stream_lanes
from candle_convert.ops.quants.cuda.device_encoder import DeviceEncoder
from candle_convert.runtime.base.errors import FormatError, LimitError
from candle_convert.runtime.cuda.memory.pool import pool_of
from candle_convert.runtime.passes.quantize.block_weights import BlockAudit, quantized
from candle_convert.runtime.tensor.block_codec import codec_of
from candle_convert.runtime.tensor.dtype import DTYPES
from candle_convert.runtime.tensor.storage import Held
from candle_convert.runtime.tensor.stored_tensor import StoredTensor

SLICE = 256
TENSORS = [
    ("q8_0", "f32", (5, 64)),
    ("q4_k", "f16", (2, 256)),
    ("q4_0", "bf16", (2, 3, 96)),
    ("q5_1", "bf16", (1, 32)),
    ("q8_0", "f16", (11, 32)),
    ("iq4_nl", "f32", (3, 64)),
]
"""Types of blocks and of values, with shapes: rows for more slices than lanes, of several matrices, and less than one
slice."""
STORED = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}


def tensors(codec_for, wrong=None):
    """Quantized tensors; one element of tensor number `wrong` is infinite."""
    rng = np.random.default_rng(0)
    made = []
    for number, (name, kind, shape) in enumerate(TENSORS):
        values = rng.standard_normal(shape).astype(STORED[kind])
        if number == wrong:
            values.reshape(-1)[-1] = np.inf
        importance = (
            rng.random((values.size // (shape[-2] * shape[-1]), shape[-1]), np.float32) if name == "q4_0" else None
        )
        plain = StoredTensor(DTYPES[kind], shape, Held(values.tobytes()))
        made.append(quantized(plain, codec_for(DTYPES[name]), importance, BlockAudit(str(number), "error")))
    return made


def there(some):
    """Codecs that take small slices."""
    found = {}

    def codec_for(dtype):
        if dtype not in found:
            codec = codec_of(dtype)
            found[dtype] = dataclasses.replace(codec, encoder=DeviceEncoder(codec, some, SLICE))
        return found[dtype]

    return codec_for


def written(made, threads=4):
    """The bytes of tensors, read in slices by several threads."""
    jobs = [
        (index, tensor.storage, at)
        for index, tensor in enumerate(made)
        for at in range(0, tensor.storage.nbytes, tensor.storage.step)
    ]
    out = [bytearray(tensor.storage.nbytes) for tensor in made]

    def write(job):
        index, storage, start = job
        stop = min(start + storage.step, storage.nbytes)
        out[index][start:stop] = storage.read(start, stop)

    with ThreadPoolExecutor(threads) as crew:
        list(crew.map(write, jobs))
    return out


def bytes_():
    expected = [bytes(tensor.storage.read(0, tensor.storage.nbytes)) for tensor in tensors(codec_of)]
    for count in (1, 3):
        some = stream_lanes.Lanes("cuda", count=count)
        assert written(tensors(there(some))) == expected
        assert [bytes(tensor.storage.read(0, tensor.storage.nbytes)) for tensor in tensors(there(some))] == expected


def bounded():
    """Lanes share what is allowed; no more of them work at once than there are."""
    limit = 2 * 4096 * device_encoder.SPENT
    some, most, working = stream_lanes.Lanes("cuda", limit, count=2), [0, 0], []
    run = stream_lanes.Lane.run

    def counted(lane, *arguments):
        working.append(lane)
        run(lane, *arguments)
        most[:] = max(most[0], len(working)), max(most[1], pool_of(0).held)
        working.remove(lane)

    stream_lanes.Lane.run = counted
    assert DeviceEncoder(codec_of(DTYPES["q8_0"]), some).slice == 4096
    written(tensors(there(some)), threads=6)
    assert most[0] <= 2, most
    assert 0 < most[1] <= limit, most
    assert len(some._idle) <= 2


def failing():
    """A tensor that cannot be encoded, and a launch that fails: lanes go on, and all memory comes back."""
    before = pool_of(0).held
    some = stream_lanes.Lanes("cuda", count=2)
    try:
        written(tensors(there(some), wrong=2))
        raise AssertionError
    except FormatError as error:
        assert error.code == "E-NAN"
    launched, calls = device_encoder.encode, []

    def fails(codec, lane, *arguments):
        calls.append(codec)
        if len(calls) == 5:
            lane.ready(64, 1 << 16, 64)
            raise MemoryError("the device is gone")
        return launched(codec, lane, *arguments)

    device_encoder.encode = fails
    try:
        written(tensors(there(some)))
        raise AssertionError
    except MemoryError as error:
        assert str(error) == "the device is gone"
    device_encoder.encode = launched
    assert len(some._idle) < 3
    assert some._room._value == 2
    written(tensors(there(some)))
    del some
    gc.collect()
    assert pool_of(0).held == before


def short():
    """Not even a row fits."""
    try:
        written(tensors(there(stream_lanes.Lanes("cuda", 1 << 10))))
        raise AssertionError
    except LimitError as error:
        assert error.code == "E-DEVICE-MEMORY"


def freed():
    """Lanes, with the codecs that use them."""
    lanes = stream_lanes.Lanes("cuda")
    codec_for = device_encoder.on_device(lanes)
    assert codec_for(DTYPES["q8_0"]).encoder.lanes is lanes
    left = weakref.ref(lanes)
    del lanes, codec_for
    gc.collect()
    assert left() is None


CASES = {"bytes": bytes_, "bounded": bounded, "failing": failing, "short": short, "freed": freed}

if __name__ == "__main__":
    CASES[sys.argv[1]]()
    print(sys.argv[1])

"""onnxruntime's attention on the device: sinks, biases, positions, masks, packed inputs, quantized KV caches."""

import ml_dtypes
import numpy as np
from candle_convert.runtime.cuda.memory.device_array import DeviceArray
from candle_convert.runtime.ir.builder import Builder
from candle_convert.runtime.ir.graph import Graph, Value
from candle_convert.runtime.plan.plan import dtype_of
from candle_convert.runtime.session import Session
from candle_convert.tests.device_scripts.graph_cases import host_steps
from numba import cuda

I32 = np.int32
RNG = np.random.default_rng(0)


def floats(*shape, dtype=np.float32):
    return RNG.standard_normal(shape).astype(dtype)


def integers(*values):
    return np.array(values, I32)


def separate(batch, length, size=4, dtype=np.float32):
    return [
        floats(batch, length, 4 * size, dtype=dtype),
        *(floats(batch, length, 2 * size, dtype=dtype) for _ in range(2)),
    ]


def grown(batch, length, room, last, total, dtype=np.float32):
    """A run of a few more tokens."""
    return [
        *separate(batch, length, dtype=dtype),
        *(floats(batch, 2, room, 4, dtype=dtype) for _ in range(2)),
        integers(*last),
        np.array(total, I32),
    ]


def first(batch, length, dtype=np.float32):
    return [*separate(batch, length, dtype=dtype), None, None, integers(*[length - 1] * batch), np.array(length, I32)]


def coded(batch, length, room, dtype, bits, scales):
    """The same with caches of codes, of which a few are made up."""
    inputs = grown(batch, length, room, (5, 3), 7)
    for place in (3, 4):
        codes = RNG.integers(0, 100, (batch, 2, room, 4 * bits // 8)).astype(np.uint8)
        inputs[place] = codes.view(dtype)
    return [*inputs, *[None] * 5, *(RNG.random(scales).astype(np.float32) * 0.02 + 0.01 for _ in range(2))]


def of_floats(batch, length, room, dtype, scales):
    """Caches of floats of 8 bits, with scales or without."""
    inputs = grown(batch, length, room, (5, 3), 7)
    for place in (3, 4):
        inputs[place] = floats(batch, 2, room, 4).astype(dtype)
    return (
        inputs
        if scales is None
        else [*inputs, *[None] * 5, *(RNG.random(scales).astype(np.float32) * 0.2 + 0.1 for _ in range(2))]
    )


CACHES = [floats(16, 2), floats(16, 2)]
NONE = [None, None]
SHARED = {"num_heads": 4, "kv_num_heads": 2}
ROTARY = {**SHARED, "do_rotary": 1}
SLIDING = {**SHARED, "sliding_window_cache": 1, "local_window_size": 3}
GROUPED = {
    "sinks of a prompt": ([*first(2, 3), *NONE, None, None, floats(4)], SHARED),
    "zero sinks": (first(1, 3), {**SHARED, "smooth_softmax": 1}),
    "sinks, keys shared": (
        [*grown(2, 1, 9, (8, 5), 9), *NONE, None, None, floats(4)],
        {**SHARED, "local_window_size": 4},
    ),
    "sinks on tensor cores": (
        [*grown(1, 5, 9, (8,), 9, np.float16), *NONE, None, None, floats(4, dtype=np.float16)],
        SHARED,
    ),
    "bias": ([*grown(2, 2, 9, (6, 4), 7), *NONE, None, floats(1, 4, 2, 7)], SHARED),
    "bias for each": ([*first(2, 3), *NONE, None, floats(2, 1, 3, 3)], {**SHARED, "softcap": 3.0}),
    "positions": ([*grown(2, 2, 9, (6, 4), 7), *CACHES, np.array([[3, 9], [0, 1]])], ROTARY),
    "positions of a prompt": ([*first(2, 3), *CACHES, np.array([[4]])], ROTARY),
    **{
        f"{dtype} of {bits} bits": (
            coded(2, 2, 7, dtype, bits, scales),
            {**SHARED, **dict.fromkeys(("k_quant_type", "v_quant_type"), kind), "kv_cache_bit_width": bits},
        )
        for dtype, bits, kind, scales in [
            ("int8", 8, "PER_TENSOR", (1,)),
            ("uint8", 8, "PER_CHANNEL", (1, 2, 1, 4)),
            ("uint8", 4, "PER_CHANNEL", (1, 2, 1, 4)),
        ]
    },
    **{
        f"{kind.__name__} {'plain' if scales is None else 'with a scale'}": (
            of_floats(2, 2, 7, kind, scales),
            {**SHARED, **({} if scales is None else dict.fromkeys(("k_quant_type", "v_quant_type"), "PER_CHANNEL"))},
        )
        for kind, scales in [(ml_dtypes.float8_e4m3fn, (1, 2, 1, 4)), (ml_dtypes.float8_e5m2, None)]
    },
    "norms": (
        [*grown(2, 2, 9, (6, 4), 7), *CACHES, *[None] * 5, floats(4), floats(4)],
        {**ROTARY, "qk_norm_epsilon": 0.1},
    ),
    "norms of a prompt": (
        [*first(2, 3, np.float16), *NONE, *[None] * 5, floats(4, dtype=np.float16), floats(4, dtype=np.float16)],
        SHARED,
    ),
    "scores": (grown(2, 2, 9, (6, 4), 7), {**SHARED, "qk_output": 1}),
    "shares": ([*first(2, 3), *NONE, None, floats(2, 1, 3, 3)], {**SHARED, "qk_output": 2, "softcap": 3.0}),
    "shares in visibility": (grown(2, 2, 9, (6, 4), 7), {**SHARED, "qk_output": 2, "local_window_size": 3}),
    "sliding": (grown(2, 2, 6, (20, 4), 21), SLIDING),
    "sliding by one": ([*grown(3, 1, 6, (7, 5, 6), 8), *CACHES], {**SLIDING, "do_rotary": 1, "softcap": 3.0}),
    "sliding, a bias": (
        [*grown(2, 2, 5, (9, 3), 11), *NONE, None, floats(1, 4, 2, 11)],
        {**SLIDING, "local_window_size": 5},
    ),
    "sliding, a bias for each and sinks": (
        [*grown(2, 3, 4, (9, 3), 10), *NONE, None, floats(2, 1, 3, 10), floats(4)],
        SLIDING,
    ),
    "sliding, a prompt that is longer": (grown(1, 9, 5, (8,), 9), {**SLIDING, "causal": 1}),
    "sliding, a prompt of halves": (grown(2, 5, 7, (4, 4), 5, np.float16), SLIDING),
    "sliding codes": (
        coded(2, 2, 5, "uint8", 4, (1, 2, 1, 4)),
        {**SLIDING, **dict.fromkeys(("k_quant_type", "v_quant_type"), "PER_CHANNEL"), "kv_cache_bit_width": 4},
    ),
    "visibility ahead": (grown(2, 2, 9, (6, 4), 7), {**SHARED, "causal": 0}),
}
HEADS, ALL, PAIR, WIDE = {"num_heads": 2}, (2, 3, 2, 3, 4), (2, 5, 2, 2, 4), (2, 3, 8)
CROSS = [floats(*WIDE), floats(2, 5, 8), floats(2, 5, 12)]
SELF = [floats(*WIDE) for _ in range(3)]
PAST, ROOM = ([floats(2, 2, length, 4), floats(2, 2, length, 4)] for length in (2, 9))
PACKED = {
    "all packed": ([floats(*ALL), None, None, floats(24)], {**HEADS, "unidirectional": 1}),
    "keys and values packed": ([floats(*WIDE), floats(*PAIR)], HEADS),
    "lengths": ([*CROSS, None, integers(2, 4)], HEADS),
    "lengths and more": ([*CROSS, floats(28), integers(2, 4, 0, 3, 6, 0, 5, 10)], HEADS),
    "ends and starts": ([*CROSS, None, integers(3, 5, 1, 0)], HEADS),
    "seen keys": ([*SELF, None, RNG.integers(0, 2, (2, 4)).astype(I32), floats(1, 2, 3, 5), *PAST], HEADS),
    "nothing seen": ([*CROSS, None, np.zeros((2, 5), I32)], {**HEADS, "mask_filter_value": -3.0}),
    "for each query": ([*CROSS, None, RNG.integers(0, 2, (2, 3, 5)).astype(I32)], HEADS),
    "written behind": ([*SELF, None, None, None, *ROOM, integers(3)], {**HEADS, "unidirectional": 1}),
    "written first": ([*SELF, floats(24), None, None, *ROOM, integers(0)], {**HEADS, "unidirectional": 1}),
    "written, seen keys": ([*SELF, None, RNG.integers(0, 2, (2, 5)).astype(I32), None, *ROOM, integers(2)], HEADS),
    "written, a bias": ([*SELF, None, integers(4, 5), floats(1, 2, 3, 5), *ROOM, integers(2)], HEADS),
    "written, for each query": (
        [floats(*ALL), None, None, None, RNG.integers(0, 2, (2, 3, 7)).astype(I32), None, *ROOM, integers(4)],
        HEADS,
    ),
    "for each place": ([*SELF, None, RNG.integers(0, 2, (2, 1, 6, 7)).astype(I32), None, *PAST], HEADS),
}


BUFFER, PROJECTION = floats(2, 2, 2, 9, 4), [floats(2, 3, 6), floats(6, 24), floats(24)]
BESIDE = {
    "in a buffer": ([*PROJECTION, None, BUFFER, None, integers(4)], {**HEADS, "unidirectional": 1}),
    "in a buffer, seen keys": ([*PROJECTION, RNG.integers(0, 2, (2, 5)).astype(I32), BUFFER, None, integers(2)], HEADS),
    "in a buffer, a bias": ([*PROJECTION, integers(4, 5), BUFFER, floats(1, 2, 3, 5), integers(2)], HEADS),
}


def compared(name, operator, inputs, attributes, count, where=lambda array: array, domain="com.microsoft"):
    fed = {f"x{index}": array for index, array in enumerate(inputs) if array is not None}

    def graph():
        made = Graph()
        made.inputs = [Value(key, dtype_of(array), array.shape) for key, array in fed.items()]
        outputs = [Value(f"y{index}") for index in range(count)]
        made.values = {value.name: value for value in (*made.inputs, *outputs)}
        given = [made.values.get(f"x{index}") for index in range(len(inputs))]
        Builder(made).add(operator, given, attributes, domain=domain, outputs=outputs)
        made.outputs = outputs
        return made

    session = Session(graph(), device="cuda")
    found = session.run(None, {key: where(array) for key, array in fed.items()})
    assert not host_steps(session.program), (name, host_steps(session.program))
    for one, other in zip(found, Session(graph(), native=False).run(None, fed), strict=True):
        bound = 1e-5 if one.dtype == np.float32 else 2e-3
        np.testing.assert_allclose(
            np.asarray(one, np.float32), np.asarray(other, np.float32), rtol=bound, atol=bound, err_msg=name
        )


if __name__ == "__main__":
    for name, (inputs, attributes) in GROUPED.items():
        compared(name, "GroupQueryAttention", inputs, attributes, 4 if "qk_output" in attributes else 3)
    for name, (inputs, attributes) in PACKED.items():
        compared(name, "MultiHeadAttention", inputs, attributes, 3)
    for name, (inputs, attributes) in BESIDE.items():
        compared(name, "Attention", inputs, {**attributes, "past_present_share_buffer": 1}, 2)
    compared(
        "total on the device",
        "GroupQueryAttention",
        *GROUPED["bias"],
        3,
        lambda array: DeviceArray.wrap(cuda.to_device(array)),
    )
    print(len(GROUPED) + len(PACKED))

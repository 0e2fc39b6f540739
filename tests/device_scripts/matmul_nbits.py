"""MatMulNBits and GatherBlockQuantized on the device: weights stay packed, results equal the CPU's."""

import ml_dtypes
import numpy as np
from candle_convert.ops.rules.bit_packing import row_nbytes
from candle_convert.runtime.cuda.element.block_quantized import QuantizedBuffer
from candle_convert.runtime.cuda.kernel.kernel import Launch
from candle_convert.runtime.ir.builder import Builder
from candle_convert.runtime.ir.graph import Graph, Value
from candle_convert.runtime.plan.kernel_api import Buffer
from candle_convert.runtime.plan.plan import dtype_of
from candle_convert.runtime.session import Session
from candle_convert.tests.device_scripts.cached_attention_on_device import compared
from candle_convert.tests.device_scripts.graph_cases import host_steps

F32, F16, BF16 = np.float32, np.float16, ml_dtypes.bfloat16
ROWS, INTEGERS, TILES, CORES, FOLD = (
    "floats by rows of",
    "integers by",
    "product of float32 and",
    "product of",
    "fold of",
)
PRODUCTS = [
    # rows, K, N, size, bits, zeros, what else, and how a kernel's title begins
    (1, 40, 5, 16, 4, "packed", {}, ROWS),
    (3, 64, 5, 32, 4, None, {"bias": True}, ROWS),
    (2, 70, 3, 32, 8, "packed", {}, ROWS),
    (1, 33, 4, 16, 2, "floats", {}, ROWS),
    (2, 64, 3, 64, 4, "packed", {"dtype": F16, "bias": True}, ROWS),
    (4, 96, 3, 32, 8, None, {}, ROWS),
    (2, 20, 3, 8, 4, "packed", {}, FOLD),
    (2, 40, 3, 16, 5, "packed", {}, FOLD),
    (2, 48, 3, 16, 4, "packed", {"order": True, "bias": True}, FOLD),
    (7, 45, 5, 16, 4, "packed", {"order": True}, TILES),
    (7, 50, 5, 16, 4, "packed", {"bias": True}, TILES),
    (6, 70, 5, 32, 8, None, {}, TILES),
    (5, 64, 4, 32, 2, "floats", {}, TILES),
    (9, 40, 10, 16, 4, "packed", {"dtype": F16}, CORES),
    (9, 40, 7, 32, 8, "packed", {"dtype": F16}, CORES),
    (5, 45, 6, 32, 4, None, {"dtype": F16}, CORES),
    (5, 64, 6, 32, 2, "floats", {"dtype": BF16, "bias": True}, CORES),
    (6, 70, 5, 32, 4, "packed", {"level": 4}, INTEGERS),
    (5, 96, 3, 16, 8, None, {"level": 4}, INTEGERS),
    (2, 64, 3, 32, 4, None, {"level": 4}, ROWS),
    (5, 64, 3, 64, 2, "floats", {"level": 4}, INTEGERS),
]


def network(rows, depth, columns, size, bits, zeros, more):
    """A graph whose weight is a constant, and what it is fed."""
    rng, groups, dtype = np.random.default_rng(0), -(-depth // size), more.get("dtype", F32)
    arrays = {
        1: rng.integers(0, 256, (columns, groups, row_nbytes(size, bits))).astype(np.uint8),
        2: (rng.random((columns, groups)) / (1 << bits)).astype(dtype),
        3: rng.integers(0, 256, (columns, row_nbytes(groups, bits))).astype(np.uint8) if zeros == "packed" else
           (rng.random((columns, groups)) * (1 << bits)).astype(dtype) if zeros else None,
        4: rng.integers(0, groups, depth).astype(np.int32) if more.get("order") else None,
        5: rng.standard_normal(columns).astype(dtype) if more.get("bias") else None,
    }  # fmt: skip
    x = rng.standard_normal((rows, depth)).astype(dtype)
    attributes = {"K": depth, "N": columns, "block_size": size, "bits": bits, "accuracy_level": more.get("level", 0)}
    made = Graph()
    made.inputs = [Value("x", dtype_of(x), (rows, depth))]
    made.values = {"x": made.inputs[0]}
    b = Builder(made)
    inputs = [made.inputs[0], *(None if array is None else b.constant(array) for array in arrays.values())]
    made.outputs = [b.add("MatMulNBits", inputs, attributes, domain="com.microsoft")]
    return made, {"x": x}


def products():
    """The codes are read as they are stored, and nothing has the weight's size beside them."""
    for *case, wanted in PRODUCTS:
        _, depth, columns, size, _, _, more = case
        graph, fed = network(*case)
        session = Session(graph, device="cuda")
        y, expected = (
            np.asarray(item.run(None, fed)[0], F32) for item in (session, Session(network(*case)[0], native=False))
        )
        assert not host_steps(session.program), case
        launches = [step for step in session.program.plans[-1].steps if isinstance(step, Launch)]
        (reading,) = [step for step in launches if any(isinstance(item, QuantizedBuffer) for item in step.arguments)]
        title = reading.kernel.title
        assert title.startswith(wanted), (case, title)
        assert title.endswith("on tensor cores") == (wanted in (CORES, INTEGERS)), (case, title)
        buffers = [
            item
            for step in launches
            for item in step.arguments
            if isinstance(item, Buffer) and item.allocation.constant is None
        ]
        assert all(item.count != columns * size * -(-depth // size) for item in buffers), case
        bound = 3e-2 if wanted is INTEGERS else {F32: 1e-4, F16: 4e-3, BF16: 4e-2}[more.get("dtype", F32)]
        np.testing.assert_allclose(y, expected, rtol=bound, atol=bound * np.abs(expected).max(), err_msg=str(case))


def rows():
    """Rows of every form, along either axis, of indices that there are and others."""
    rng, name = np.random.default_rng(1), "GatherBlockQuantized"
    ids, scales = np.array([[3, -1], [7, -9]], np.int32), rng.random((5, 3)).astype(F32)
    codes = rng.integers(0, 256, (5, 20)).astype(np.uint8)
    for bits, count in ((4, 40), (2, 80), (8, 20)):
        size = {4: 16, 2: 32, 8: 8}[bits]
        points = rng.integers(0, 256, (5, row_nbytes(3, bits))).astype(np.uint8)
        assert -(-count // size) == 3
        for zeros in ([points], []):
            compared(f"{name} {bits} bits", name, [codes, ids, scales, *zeros], {"bits": bits, "block_size": size}, 1)
    small = rng.integers(-8, 8, (5, 3, 20)).astype(ml_dtypes.int4)
    for axis, along in ((0, 2), (1, 2), (2, 0), (2, 2), (0, 0), (1, 1)):
        shape = [-(-length // 2) if place == along else length for place, length in enumerate(small.shape)]
        given = [
            small,
            np.array([2, -1, 9]),
            rng.random(shape).astype(F16),
            rng.integers(-8, 8, shape).astype(ml_dtypes.int4),
        ]
        compared(
            f"{name} {axis} {along}", name, given, {"gather_axis": axis, "quantize_axis": along, "block_size": 2}, 1
        )


def behind():
    """Codes behind a DequantizeLinear are not made floats, neither while a session is made nor while it runs."""
    rng, graph = np.random.default_rng(2), Graph()
    fed = {"x": rng.standard_normal((2, 64)).astype(F32), "ids": np.array([3, 0])}
    graph.inputs = [Value(name, dtype_of(array), array.shape) for name, array in fed.items()]
    graph.values = {value.name: value for value in graph.inputs}
    b = Builder(graph)
    x, ids = graph.inputs
    real = [
        b.add(
            "DequantizeLinear",
            [b.constant(rng.integers(-8, 8, shape).astype(ml_dtypes.int4)), b.constant(rng.random(spread).astype(F32))],
            {"axis": axis, "block_size": 16},
        )
        for shape, spread, axis in (((64, 24), (4, 24), 0), ((24, 64), (24, 4), 1))
    ]
    graph.outputs = [b.add("MatMul", [x, real[0]]), b.add("Gather", [real[1], ids])]
    session = Session(graph, device="cuda", simplify=True)
    for one, other in zip(session.run(None, fed), Session(graph, native=False).run(None, fed), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
    plan = session.program.plans[-1]
    assert not host_steps(session.program)
    assert sum(array.nbytes for array in plan.weights.values()) < 2 * 64 * 24
    assert plan.arena < 4 * 64 * 24


if __name__ == "__main__":
    products()
    behind()
    rows()
    print(len(PRODUCTS))

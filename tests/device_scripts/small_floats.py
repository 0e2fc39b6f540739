"""Floats of 4 to 8 bits on the device against ml_dtypes: rounding, operators that use them, packed 4-bit weights."""

import tempfile
from pathlib import Path

import candle_convert as cc
import ml_dtypes
import numpy as np
from candle_convert.runtime.cuda.device.device import SIMULATED
from candle_convert.runtime.cuda.element import small_dtypes
from candle_convert.runtime.cuda.element.sub_byte import PackedBuffer
from candle_convert.runtime.cuda.kernel.kernel import Launch
from candle_convert.runtime.ir.builder import Builder
from candle_convert.runtime.ir.graph import Graph, Value
from candle_convert.runtime.plan.plan import dtype_of
from candle_convert.runtime.session import Session
from candle_convert.tests.device_scripts.cached_attention_on_device import compared
from candle_convert.tests.device_scripts.graph_cases import host_steps

np.seterr(all="ignore")
RNG = np.random.default_rng(0)
F32 = np.float32
SPECIAL = [np.nan, -np.nan, np.inf, -np.inf, 1e30, -1e30, -0.0, 0.0, 1e-30, -1e-40]


def codes():
    for name, kind in small_dtypes.SMALL.items():
        dtype = np.dtype(getattr(ml_dtypes, name))
        all_codes = np.arange(1 << kind.width, dtype=np.uint8)
        form = (kind.width, kind.fraction, kind.bias, kind.top, kind.beyond)
        numbers = all_codes.view(dtype).astype(F32)
        np.testing.assert_array_equal([small_dtypes.small(code, *form) for code in all_codes], numbers, name)
        finite = np.sort(numbers[np.isfinite(numbers)])
        assert finite[-1] == kind.largest
        middles = (finite[1:] + finite[:-1]) / 2
        near = [np.nextafter(middles, F32(side)) for side in (-np.inf, np.inf)]
        x = np.concatenate(
            [middles, *near, finite, finite[[0, -1]] * F32(1.05), finite[[0, -1]] * F32(1.2), SPECIAL]
        ).astype(F32)
        np.testing.assert_array_equal(
            [small_dtypes.to_small(number, *form) for number in x], x.astype(dtype).view(np.uint8), name
        )
    powers = np.arange(256, dtype=np.uint8)
    found = [small_dtypes.power(code) for code in powers]
    np.testing.assert_array_equal(found, powers.view(ml_dtypes.float8_e8m0fnu).astype(F32))
    assert [small_dtypes.to_power(number) for number in found] == powers.tolist()


WIDE = np.concatenate([RNG.standard_normal(20) * 10.0 ** RNG.integers(-3, 5, 20), [np.nan, np.inf, -np.inf, 0]]).astype(
    F32
)
WHOLE = np.array([-9, -8, -1, 0, 3, 7, 8, 300], np.int32)
KINDS = {
    17: "float8_e4m3fn",
    18: "float8_e4m3fnuz",
    19: "float8_e5m2",
    20: "float8_e5m2fnuz",
    21: "uint4",
    22: "int4",
    23: "float4_e2m1fn",
    25: "uint2",
    26: "int2",
}


def some(name, count=12, rng=RNG, rows=3):
    return rng.integers(0, 100, count).astype(F32).astype(np.dtype(getattr(ml_dtypes, name))).reshape(rows, -1)


def nodes():
    for number, name in KINDS.items():
        integers = "int" in name
        for saturate in (0, 1) if "float8" in name else (1,):
            compared(
                f"to {name}", "Cast", [WHOLE if integers else WIDE], {"to": number, "saturate": saturate}, 1, domain=""
            )
        compared(f"from {name}", "Cast", [some(name)], {"to": 1}, 1, domain="")
        compared(f"{name} transposed", "Transpose", [some(name)], {"perm": [1, 0]}, 1, domain="")
        zero = [] if number in (23, 25, 26) else [some(name, 3).reshape(3)]
        scale = np.array([0.3, 0.02, 5], F32)
        compared(f"{name} back", "DequantizeLinear", [some(name), scale, *zero], {"axis": 0}, 1, domain="")
        finite = np.nan_to_num(WIDE, posinf=9, neginf=-9).reshape(3, -1)
        for dtype in (F32, np.float16, ml_dtypes.bfloat16):
            compared(
                f"to {name} in steps",
                "QuantizeLinear",
                [finite, scale.astype(dtype), *zero],
                {"axis": 0, "output_dtype": number},
                1,
                domain="",
            )
    scales, zeros = RNG.random((6, 2)).astype(F32), some("int4", 12).reshape(6, 2)
    rows = [some("int4", 192).reshape(6, 32), np.array([3, 0, -1], np.int32), scales, zeros]
    compared("blocks of int4", "GatherBlockQuantized", rows, {"block_size": 16}, 1)


LARGE = 1 + (1 << 17)
"""Elements of a weight that is not computed with while planning, and which files are mapped for."""
FED = {"scale": np.array([0.3, 0.02, 5, 1, 2], F32), "ids": np.array([6, -1, 3])}


def kept(name, in_file=False):
    """A graph of a weight of 5 x 7 elements, so that rows begin within bytes, of a large one, and of what nodes make of
    them; in files none is looked up."""
    graph, rng = Graph(), np.random.default_rng(1)
    b = Builder(graph)
    graph.values |= {key: Value(key, dtype_of(array), array.shape) for key, array in FED.items()}
    scale, ids = graph.inputs = list(graph.values.values())
    w, large = b.constant(some(name, 35, rng, 5)), b.constant(some(name, LARGE, rng, 1))
    whole = b.add("Reshape", [large, b.constant([LARGE])])
    graph.outputs = [b.add("DequantizeLinear", [w, scale], {"axis": 0}), whole]
    if "float" not in name:
        scales, zeros = (
            b.add("Expand", [b.add("Unsqueeze", [scale, b.constant([1])]), b.constant([5, 4])]),
            b.constant(some(name, 20, rng, 5)),
        )
        graph.outputs.append(b.add("DequantizeLinear", [w, scales, zeros], {"axis": 1, "block_size": 2}))
    if not in_file:
        graph.outputs += [
            b.add("Gather", [w, ids], {"axis": 1}),
            b.add("Cast", [b.add("Gather", [whole, ids])], {"to": 1}),
        ]
    return graph


def weights():
    """Weights of few bits are packed in the device's memory, also those of files, and what is made of them is what the
    CPU makes."""
    for name in ("int4", "uint4", "float4_e2m1fn", "int2", "uint2"):
        with tempfile.TemporaryDirectory() as folder:
            path = str(Path(folder) / "model.onnx")
            cc.onnx.Network(kept(name, in_file=True)).save(path)
            for graph in (kept(name), cc.open(path)):
                session, expected = Session(graph, device="cuda"), Session(graph, native=False).run(None, FED)
                for _ in range(2):
                    for one, other in zip(session.run(None, FED), expected, strict=True):
                        np.testing.assert_array_equal(np.asarray(one, np.float64), np.asarray(other, np.float64), name)
                assert not host_steps(session.program)
                plan = session.program.plans[-1]
                used = [
                    item
                    for step in plan.steps
                    if isinstance(step, Launch)
                    for item in step.arguments
                    if isinstance(item, PackedBuffer)
                ]
                assert used, name
                assert {item.allocation.nbytes for item in used} <= {
                    -(-count * used[0].bits // 8) for count in (35, 20, LARGE)
                }, name


if __name__ == "__main__":
    if SIMULATED:  # device functions are Python functions there
        codes()
    nodes()
    weights()
    print(len(KINDS))

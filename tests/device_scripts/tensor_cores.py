"""Tensor cores: decoded blocks against the codecs, mma fragments against NumPy, every tensor-core kernel."""

import numpy as np
from candle_convert.ops.quants.cuda.dot4_runs import RUNS
from candle_convert.runtime.cuda.device.device import SIMULATED
from candle_convert.runtime.cuda.device.mma_fragment import shape_of
from candle_convert.runtime.cuda.element.block_quantized import UNITS
from candle_convert.runtime.tensor.dtype import DTYPES
from candle_convert.tests.builders.sampling import full
from candle_convert.tests.device_scripts.tensor_core_kernels import KERNELS, arguments, rows_of

np.seterr(all="ignore")
FULL = full()
MORE = ("f16, transposed", "bf16, four tiles", "decoded q8_0", "integers q5_1", "integers q6_k, two warps")
"""Kernels that are like others, left out unless CANDLE_FULL=1."""


def runs():
    """Four codes at a time, scaled, are the numbers that gguf-py decodes."""
    for name, run in RUNS.items():
        dtype = DTYPES[name]
        tensor, numbers = rows_of(name, 2)
        words, flat = np.frombuffer(tensor.raw(), UNITS[run.unit]), numbers.reshape(-1)
        for index in range(0, flat.size, 4):
            block, within = index // dtype.block * dtype.block_nbytes // run.unit, index % dtype.block
            part, four = within // run.length, within % run.length // 4
            packed = run.codes(words, block, part, four)
            if run.sixteen is not None:
                assert run.sixteen(words, block, part, four // 4)[four % 4] == packed
            codes = np.array([packed], np.int32).view(np.int8).astype(np.float32)
            found = run.scale(words, block, part) * codes - (0 if run.least is None else run.least(words, block, part))
            np.testing.assert_allclose(
                found, flat[index : index + 4], rtol=1e-6, atol=1e-6 * np.abs(flat).max(), err_msg=name
            )


def fragments():
    """Each element of an operand lies in one register of one thread; the products are those of the matrices."""
    rng = np.random.default_rng(0)
    for kind, depth in (("f16", 8), ("f16", 16), ("bf16", 16), ("s8", 16), ("s8", 32)):
        shape = shape_of(kind, depth)
        a, b = rng.integers(-9, 9, (16, depth)), rng.integers(-9, 9, (depth, 8))
        for places, matrix in ((shape.a_places(), a), (shape.b_places(), b)):
            assert len({tuple(place) for place in places.reshape(-1, 2)}) == matrix.size == places.size // 2
        held = [
            np.ascontiguousarray(matrix[places[..., 0], places[..., 1]].astype(shape.element)).view(np.int32)[..., 0]
            for matrix, places in ((a, shape.a_places()), (b, shape.b_places()))
        ]
        sums = shape.multiplied(np.ones((32, 4), shape.total), *held)
        places = shape.c_places()
        assert (sums == (a @ b)[places[..., 0], places[..., 1]] + 1).all()


def main():
    if SIMULATED:  # device functions are Python functions there
        runs()
        fragments()
    for name, made in KERNELS.items():
        if SIMULATED and not FULL and name in MORE:
            continue
        launch, y, expected, bound = made()
        launch.kernel.launch(launch.blocks, arguments(launch))
        np.testing.assert_allclose(y, expected, rtol=bound, atol=bound * np.abs(expected).max(), err_msg=name)
    print(len(KERNELS))


if __name__ == "__main__":
    main()

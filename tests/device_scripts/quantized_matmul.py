"""Weights of every block type on the device: GEMV, GEMM, experts and gathered rows, against gguf-py.

python quantized_matmul.py [TYPE ...]
"""

import sys

import numpy as np
from candle_convert.runtime.cuda.element.block_quantized import QuantizedBuffer
from candle_convert.runtime.cuda.kernel.kernel import Launch
from candle_convert.runtime.cuda.plan.plan import HostStep
from candle_convert.runtime.session import Session
from candle_convert.runtime.tensor.dtype import DTYPES, F32, I64
from candle_convert.runtime.tensor.storage import Held
from candle_convert.runtime.tensor.stored_tensor import StoredTensor
from candle_convert.tests.builders.block_weights import close, fed, linear, model, weight


def taken(tensor):
    """Rows of a weight by index."""
    return model(tensor, lambda b, w: [b.add("Gather", [w, fed(b.graph, "ids", I64, ("n",))])])


def chosen(tensor):
    """Rows times those of experts."""

    def build(b, w):
        x, ids = fed(b.graph, "x", F32, ("n", tensor.shape[2])), fed(b.graph, "ids", I64, ("n", 2))
        return [b.add("MatMulExperts", [x, w, ids], domain="candle")]

    return model(tensor, build)


def few(name):
    """A weight of three rows of blocks of the type."""
    dtype = DTYPES[name]
    tensor, numbers = weight(name, (64, max(64, dtype.block)))
    return StoredTensor(dtype, (3, tensor.shape[1]), Held(tensor.raw()[: dtype.nbytes(3 * tensor.shape[1])])), numbers[
        :3
    ]


def stays(session):
    """Nothing runs on the CPU, and kernels read the blocks."""
    steps = session.program.plans[-1].steps
    assert not [step for step in steps if isinstance(step, HostStep)]
    assert any(
        isinstance(argument, QuantizedBuffer)
        for step in steps
        if isinstance(step, Launch)
        for argument in step.arguments
    )


def main():
    rng = np.random.default_rng(0)
    for name in sys.argv[1:]:
        tensor, numbers = few(name)
        for rows, activations, bound in ((1, "f32", 1e-5), (5, "f32", 1e-5), (2, "q8", 3e-2), (5, "q8", 3e-2)):
            x = rng.standard_normal((rows, tensor.shape[1])).astype(np.float32)
            session = Session(linear(tensor), device="cuda", activations=activations)
            (y,) = session.run(None, {"x": x})
            stays(session)
            close(y, x, numbers, bound)
            if activations == "q8":
                np.testing.assert_allclose(
                    y,
                    Session(linear(tensor), native=False, activations="q8").run(None, {"x": x})[0],
                    rtol=1e-4,
                    atol=1e-4,
                )
        session = Session(taken(tensor), device="cuda")
        (rows,) = session.run(None, {"ids": np.array([1, -1])})
        stays(session)
        np.testing.assert_allclose(rows, numbers[[1, 2]], rtol=1e-6, atol=1e-6 * np.abs(numbers).max())
        print(name)
    tensor, numbers = weight("q4_k", (3, 4, 256))
    x, ids = rng.standard_normal((2, 256)).astype(np.float32), np.array([[2, 0], [1, 2]])
    for activations in ("f32", "q8"):
        session = Session(chosen(tensor), device="cuda", activations=activations)
        (y,) = session.run(None, {"x": x, "ids": ids})
        stays(session)
        expected = Session(chosen(tensor), native=False, activations=activations).run(None, {"x": x, "ids": ids})[0]
        np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-4)
    print("experts")
    tensor, numbers = few("q8_0")

    def both(b, w):
        x, transposed = fed(b.graph, "x", F32, ("n", tensor.shape[1])), b.add("Transpose", [w], {"perm": [1, 0]})
        return [b.add("Neg", [b.add("MatMul", [x, transposed])]), b.add("MatMul", [x, transposed])]

    session, x = (
        Session(model(tensor, both), device="cuda", activations="q8"),
        rng.standard_normal((2, tensor.shape[1])).astype(np.float32),
    )
    for rows in (2, 1):
        less, more = session.run(None, {"x": x[:rows]})
        np.testing.assert_array_equal(less, -more)
        close(more, x[:rows], numbers, 3e-2)
        titles = [step.kernel.title for step in session.program.plans[-1].steps if isinstance(step, Launch)]
        assert len([title for title in titles if "q8_0" in title]) == 2, titles
        assert len([title for title in titles if "_magnitude" in title]) == 1, (
            "rows are rounded once for all weights that they meet"
        )
    print("once")


if __name__ == "__main__":
    main()

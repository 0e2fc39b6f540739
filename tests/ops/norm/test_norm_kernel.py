"""Native normalization against the NumPy functions: every operator, dtype and optional input; threads change
nothing."""

import candle_convert.formats.containers.onnx.reader as onnx_graph
import ml_dtypes
import numpy as np
import onnx
import pytest
from candle_convert.runtime.ir.op import case
from candle_convert.runtime.session import Session
from candle_convert.tests.oracles.native_vs_numpy import natively

RNG = np.random.default_rng(17)
HALVES = [(np.float16, 3e-3), (ml_dtypes.bfloat16, 3e-2)]
DOMAIN = "com.microsoft"


def floats(*shape, dtype=np.float32):
    return (RNG.normal(size=shape) + 0.5).astype(dtype)


@pytest.mark.parametrize("constant", [(), (1, 2)])
@pytest.mark.parametrize(("dtype", "rtol"), [(np.float32, 1e-5), (np.float64, 1e-12), *HALVES])
def test_layers(dtype, rtol, constant):
    for shape, axis in (((3, 40, 130), -1), ((2, 5, 9), 1), ((70, 7), 0)):
        x, rest = floats(*shape, dtype=dtype), shape[axis:]
        outputs = 3 if dtype is np.float32 else 1
        natively(
            "LayerNormalization",
            case(x, floats(*rest, dtype=dtype), floats(*rest, dtype=dtype), axis=axis, outputs=outputs),
            rtol=rtol,
            atol=rtol,
            constant=constant,
        )
        natively(
            "RMSNormalization",
            case(x, floats(*rest, dtype=dtype), axis=axis, epsilon=0.1),
            rtol=rtol,
            atol=rtol,
            constant=constant[:1],
        )
    natively("RMSNormalization", case(x, floats(1, dtype=dtype)), rtol=rtol, atol=rtol)


@pytest.mark.parametrize(("dtype", "rtol"), [(np.float32, 1e-5), HALVES[0]])
def test_residuals(dtype, rtol):
    x, skip, scale, shift, bias = (
        floats(3, 50, 80, dtype=dtype),
        floats(3, 50, 80, dtype=dtype),
        *(floats(80, dtype=dtype) for _ in range(3)),
    )
    for residual in (skip, skip[:1], skip[0]):
        natively(
            "SkipLayerNormalization",
            case(x, residual, scale, shift, bias, outputs=4 if dtype is np.float32 else 1),
            domain=DOMAIN,
            rtol=rtol,
            atol=rtol,
        )
    natively("SkipLayerNormalization", case(x, skip, scale, epsilon=0.1), domain=DOMAIN, rtol=rtol, atol=rtol)
    natively("SkipSimplifiedLayerNormalization", case(x, skip, scale, bias), domain=DOMAIN, rtol=rtol, atol=rtol)
    natively("SimplifiedLayerNormalization", case(x, scale), rtol=rtol, atol=rtol)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("dtype", "rtol"), [(np.float32, 1e-5), (np.float64, 1e-12), HALVES[0]])
def test_channels(dtype, rtol):
    x, scale, shift = floats(2, 12, 9, 31, dtype=dtype), floats(12, dtype=dtype), floats(12, dtype=dtype)
    natively("InstanceNormalization", case(x, scale, shift, epsilon=0.01), rtol=rtol, atol=rtol)
    for groups in (1, 3, 12):
        natively("GroupNormalization", case(x, scale, shift, num_groups=groups), rtol=rtol, atol=rtol)
    natively("LpNormalization", case(x, axis=1, p=1), rtol=rtol, atol=rtol)
    natively("LpNormalization", case(x * 0, axis=-1), rtol=rtol, atol=rtol)
    for axes in ([0, 2, 3], [1], [-1]):
        natively("MeanVarianceNormalization", case(x, axes=axes), rtol=rtol, atol=3 * rtol)


@pytest.mark.parametrize(
    "attributes", [{"size": 5}, {"size": 4, "alpha": 0.5, "beta": 0.6, "bias": 2.0}, {"size": 1, "beta": 0.75}]
)
def test_neighbouring_channels(attributes):
    for shape in ((2, 17, 12, 21), (3, 5, 2)):
        natively("LRN", case(floats(*shape), **attributes))
    natively("LRN", case(floats(2, 7, 30, dtype=np.float64), **attributes))


@pytest.mark.parametrize("shape", [(2, 4, 9, 15), (1, 8, 64), (3, 4, 7)])
def test_groups_overwrite_their_input(shape):
    """The norm of a result that nothing else reads takes its memory."""
    sizes, ones = ",".join(map(str, shape)), ", ".join(["0.5"] * shape[1])
    model = onnx.parser.parse_model(f"""
        <ir_version: 10, opset_import: ["" : 21]>
        run (float[{sizes}] x) => (float[{sizes}] y) <float[{shape[1]}] s = {{{ones}}}> {{
            a = Softmax (x)
            b = GroupNormalization <num_groups = 2> (a, s, s)
            y = Softmax (b)
        }}""")
    x = floats(*shape)
    (expected,) = Session(onnx_graph.graph_of(model), native=False).run(None, {"x": x})
    session = Session(onnx_graph.graph_of(model), threads=2, native=True, simplify=False)
    (found,) = session.run(None, {"x": x})
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    (plan,) = session.program.plans
    assert plan.arena == -(-x.nbytes // 64) * 64

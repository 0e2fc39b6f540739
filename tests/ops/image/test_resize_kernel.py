"""Native Resize against the NumPy function: modes, positions, scales and sizes, dtypes; threads change nothing."""

import numpy as np
import pytest
from candle_convert.ops.image.interpolation import NEAREST, POSITIONS
from candle_convert.runtime.ir.op import case
from candle_convert.tests.oracles.native_vs_numpy import natively

RNG = np.random.default_rng(37)
PLACES = sorted(set(POSITIONS) - {"tf_crop_and_resize", "tf_half_pixel_for_nn"})


def floats(*shape, dtype=np.float32):
    return RNG.normal(size=shape).astype(dtype)


def scales(*numbers):
    return np.array(numbers, np.float32)


@pytest.mark.parametrize("place", PLACES)
def test_positions(place):
    x = floats(1, 3, 9, 21)
    for mode in ("nearest", "linear", "cubic"):
        for each in (scales(1, 1, 2, 2), scales(1, 1, 1.7, 0.6)):
            natively(
                "Resize",
                case(x, None, each, mode=mode, coordinate_transformation_mode=place),
                constant=(2,),
                rtol=1e-4,
                atol=1e-5,
            )


@pytest.mark.parametrize("nearest", sorted(NEAREST))
@pytest.mark.parametrize("dtype", [np.float32, np.uint8, np.int64, np.float16])
def test_nearest(nearest, dtype):
    x = RNG.integers(0, 100, (2, 5, 13, 6)).astype(dtype)
    natively(
        "Resize", case(x, None, None, np.array([2, 5, 30, 7]), nearest_mode=nearest), constant=(3,), rtol=0, atol=0
    )


WEIGHTS = [
    {"mode": "linear", "antialias": 1},
    {"mode": "cubic", "exclude_outside": 1, "cubic_coeff_a": -0.5},
    {"mode": "cubic", "antialias": 1},
]


@pytest.mark.parametrize("attributes", WEIGHTS)
def test_weights(attributes):
    natively(
        "Resize",
        case(floats(2, 3, 20, 31), None, scales(1, 1, 0.4, 2.3), **attributes),
        constant=(2,),
        rtol=1e-4,
        atol=1e-5,
    )


def test_other_axes_and_dtypes():
    natively(
        "Resize",
        case(floats(2, 9, 12, 5), None, scales(2, 0.5), axes=[1, 2], mode="linear"),
        constant=(2,),
        rtol=1e-4,
        atol=1e-5,
    )
    natively("Resize", case(floats(2, 30), None, scales(1, 3.5), mode="linear"), constant=(2,), rtol=1e-4, atol=1e-5)
    natively(
        "Resize",
        case(floats(1, 2, 9, 12, dtype=np.float64), None, scales(1, 1, 2, 2), mode="linear"),
        constant=(2,),
        rtol=1e-6,
    )
    natively(
        "Resize",
        case(floats(1, 2, 9, 12, dtype=np.float16), None, scales(1, 1, 2, 2), mode="linear"),
        constant=(2,),
        rtol=2e-3,
        atol=1e-3,
    )
    natively(
        "Resize",
        case(floats(1, 2, 9, 12), np.zeros(0, np.float32), scales(1, 1, 2, 2), mode="linear"),
        constant=(1, 2),
        rtol=1e-4,
        atol=1e-5,
    )

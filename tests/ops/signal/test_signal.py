"""Spectra against numpy and torch: transforms of every form, old opsets, windows, frames, mel filters."""

import candle_convert.formats.containers.onnx.reader as onnx_graph
import numpy as np
import pytest
import torch
from candle_convert.runtime.base.errors import LimitError, UsageError
from candle_convert.runtime.base.limits import limits
from candle_convert.runtime.ir.op import case
from candle_convert.runtime.ir.registry import operator
from candle_convert.runtime.ir.shape_inference import infer
from candle_convert.runtime.session import Session
from candle_convert.tests.builders.single_node import model

RNG = np.random.default_rng(4)
REAL = RNG.normal(size=(2, 6, 5, 1))
COMPLEX = RNG.normal(size=(2, 6, 5, 2))


def run(name, example, opset=None, constant=True):
    made, feeds = model(operator(name), example, opset, constant)
    graph = onnx_graph.graph_of(made)
    infer(graph)
    (result,) = Session(graph).run(None, feeds)
    assert graph.outputs[0].shape == result.shape
    return result


def whole(x):
    return x[..., 0] + 1j * x[..., 1] if x.shape[-1] == 2 else x[..., 0]


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
@pytest.mark.parametrize("length", [None, 4, 9])
@pytest.mark.parametrize("axis", [1, 2, -2, -3])
@pytest.mark.parametrize("kind", ["real", "complex", "inverse", "half", "inverse half"])
def test_transforms(kind, axis, length, dtype):
    x = (REAL if kind in ("real", "half") else COMPLEX).astype(dtype)
    along = axis if axis > 0 else axis + 1
    attributes = {"inverse": int("inverse" in kind), "onesided": int("half" in kind)}
    function = {"half": np.fft.rfft, "inverse half": np.fft.irfft, "inverse": np.fft.ifft}.get(kind, np.fft.fft)
    count = length if length is not None or kind != "inverse half" else 2 * (x.shape[axis] - 1)
    expected = function(whole(x.astype(np.float64)), n=count, axis=along)
    got = run("DFT", case(x, None if length is None else np.array(length), np.array(axis), **attributes))
    assert got.dtype == dtype
    np.testing.assert_allclose(whole(got.astype(np.float64)), expected, atol={8: 1e-12, 4: 1e-5, 2: 2e-2}[x.itemsize])


@pytest.mark.parametrize("attributes", [{}, {"axis": 2}, {"axis": 1, "onesided": 1}, {"inverse": 1}], ids=str)
def test_the_axis_as_an_attribute(attributes):
    x = REAL if attributes.get("onesided") else COMPLEX
    function = np.fft.rfft if attributes.get("onesided") else np.fft.ifft if attributes.get("inverse") else np.fft.fft
    np.testing.assert_allclose(
        whole(run("DFT", case(x, **attributes), 17)), function(whole(x), axis=attributes.get("axis", 1)), atol=1e-12
    )


@pytest.mark.parametrize("onesided", [0, 1])
@pytest.mark.parametrize("form", ["window", "length", "both"])
@pytest.mark.parametrize("step", [1, 3, 7])
def test_short_time_transforms_as_torch(step, form, onesided):
    signal = RNG.normal(size=(2, 40, 1)).astype(np.float32)
    window = torch.hann_window(8).numpy() if form != "length" else None
    length = np.array(8) if form != "window" else None
    got = run("STFT", case(signal, np.array(step), window, *([] if length is None else [length]), onesided=onesided))
    expected = torch.stft(
        torch.from_numpy(signal[..., 0]),
        8,
        step,
        window=None if window is None else torch.from_numpy(window),
        center=False,
        onesided=bool(onesided),
        return_complex=True,
    )
    np.testing.assert_allclose(whole(got.astype(np.float64)), expected.numpy().transpose(0, 2, 1), atol=1e-5)


WINDOWS = [
    ("HannWindow", torch.hann_window),
    ("HammingWindow", lambda size, **options: torch.hamming_window(size, alpha=25 / 46, beta=21 / 46, **options)),
    ("BlackmanWindow", torch.blackman_window),
]


@pytest.mark.parametrize("periodic", [0, 1])
@pytest.mark.parametrize("size", [0, 2, 9, 16])
@pytest.mark.parametrize(("name", "theirs"), WINDOWS, ids=[row[0] for row in WINDOWS])
def test_windows_as_torch(name, theirs, size, periodic):
    got = run(name, case(np.array(size), periodic=periodic, output_datatype=11))
    np.testing.assert_allclose(got, theirs(size, periodic=bool(periodic), dtype=torch.float64).numpy(), atol=1e-12)


def test_mel_filters_cover_the_spectrum():
    got = run("MelWeightMatrix", case(np.array(10), np.array(512), np.array(16000), np.float32(50), np.float32(7000)))
    assert got.shape == (257, 10)
    assert (got >= 0).all()
    np.testing.assert_array_equal(got.max(0), np.ones(10))
    peaks = got.argmax(0)
    assert (np.diff(peaks) > 0).all()
    assert (got[peaks[2] : peaks[7]].sum(1) > 0.99).all()


X = REAL[0].astype(np.float32)
REFUSED = [
    ("DFT", (X[..., :0],), {}),
    ("DFT", (X, None, np.array(2)), {}),
    ("DFT", (X, np.array(0)), {}),
    ("STFT", (X, np.array(0)), {}),
    ("STFT", (X[:, :, :1], np.array(1), np.ones(9, np.float32)), {}),
    ("HannWindow", (np.array(-1),), {}),
    ("MelWeightMatrix", (np.array(3), np.array(16), np.array(8000), np.float32(9), np.float32(5)), {}),
    ("MelWeightMatrix", (np.array(3), np.array(16), np.array(8000), np.float32(9), np.float32(90000)), {}),
]


@pytest.mark.parametrize(
    ("name", "inputs", "attributes"), REFUSED, ids=[f"{row[0]}-{index}" for index, row in enumerate(REFUSED)]
)
def test_what_makes_no_sense_is_refused(name, inputs, attributes):
    with pytest.raises(UsageError, match="E-OP-"):
        operator(name).compute(*inputs, **attributes)


SIZES = [
    ("HannWindow", (np.array(1 << 40),)),
    ("DFT", (X, np.array(1 << 40))),
    ("MelWeightMatrix", (np.array(1 << 30), np.array(1 << 20), np.array(8000), np.float32(0), np.float32(4000))),
]


@pytest.mark.parametrize(("name", "inputs"), SIZES, ids=[row[0] for row in SIZES])
def test_sizes_are_refused_before_they_are_allocated(name, inputs):
    with limits(memory=1 << 24), pytest.raises(LimitError, match="E-RUN-MEMORY"):
        operator(name).compute(*inputs)

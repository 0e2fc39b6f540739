"""`OnnxModel`: tensors in, tensors out, with ONNX Runtime's values."""

import candle_convert as cc
import numpy as np
import onnxruntime
import pytest
from candle_convert.tests.builders.paths import EXAMPLES

DIGITS = EXAMPLES / "digits.onnx"


def test_forward_gives_onnxruntimes_values():
    image = cc.load_file(EXAMPLES / "digits.npz")["image"]
    model = cc.OnnxModel.from_file(DIGITS, device=cc.Device.cpu())
    found = model.forward(cc.from_numpy(image))
    (expected,) = onnxruntime.InferenceSession(str(DIGITS), providers=["CPUExecutionProvider"]).run(
        None, {"image": image}
    )
    assert isinstance(found, cc.Tensor)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(model(image=image).numpy(), found.numpy())


def test_wrong_calls_are_refused():
    for device in ("mps", "cuda:x"):
        with pytest.raises(cc.UsageError, match="E-TENSOR-DEVICE"):
            cc.OnnxModel.from_file(DIGITS, device=device)
    model = cc.OnnxModel.from_file(DIGITS)
    with pytest.raises(cc.UsageError, match="the model takes 1 input"):
        model(cc.ones(1, 1, 8, 8), cc.ones(1))

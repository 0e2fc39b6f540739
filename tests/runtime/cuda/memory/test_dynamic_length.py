"""Operators with data-dependent output sizes, random numbers or branches run on the device, not on the CPU."""

import pytest

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")


from candle_convert.tests.builders.paths import DEVICE_SCRIPTS
from candle_convert.tests.device_scripts.graph_case_rows import rows
from candle_convert.tests.device_scripts.runner import run_script

ON_DEVICE = (
    "^(NonZero|Compress|Unique|NonMaxSuppression|Random|Bernoulli|Dropout|TfIdf|ai.onnx.ml|Constant|Sequence|Optional|SplitTo|ConcatFrom"
    "|com.microsoft.DynamicQuantizeLSTM|com.microsoft.SparseAttention|ai.onnx.preview.FlexAttention)"
)
ELSEWHERE = {
    "an input is a string tensor",
    "it has no inputs",
    "there is no number of boxes to leave",
    "an output is empty",
    "kernels do not support string",
    "it reads or returns strings",
}


def test_examples_run_on_the_device():
    found = rows("examples", 1, ON_DEVICE)
    assert len(found) >= 120
    assert not [row for row in found if row["wrong"]]
    assert not [row for row in found if {why for _, why in row["host"]} - ELSEWHERE]


def test_transforms_of_scores():
    found = rows("transforms", 3)
    assert len(found) >= 25
    assert not [row for row in found if row["wrong"]]
    assert not [row for row in found if {why for _, why in row["host"]} - ELSEWHERE]


def test_random_numbers():
    assert run_script(DEVICE_SCRIPTS / "random_operators.py").splitlines() == ["the CPU's", "Philox"]

"""Operators whose results data sizes, draws or decides on run on the device, not beside it; on a card or under Numba's simulator."""

import pytest

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from on_device import said
from test_simulated import rows

ON_DEVICE = (
    "^(NonZero|Compress|Unique|NonMaxSuppression|Random|Bernoulli|Dropout|TfIdf|ai.onnx.ml|Constant|Sequence|Optional|SplitTo|ConcatFrom"
    "|com.microsoft.DynamicQuantizeLSTM|com.microsoft.SparseAttention|ai.onnx.preview.FlexAttention)"
)
ELSEWHERE = {
    "it takes strings", "it takes nothing", "there is no number of boxes to leave", "there is nothing to compute", "kernels do not know string",
    "it takes or gives texts",
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
    assert said(Path(__file__).parent / "random_on_device.py").splitlines() == ["the CPU's", "Philox"]

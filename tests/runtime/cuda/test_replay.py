"""Graphs of launches: when they are made, used again and given up, in a process of its own."""

from pathlib import Path

import pytest

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
from on_device import said


def test_stretches_are_captured_once_and_replayed():
    """Under the simulator also where there is a card: what the driver does is not what is looked at."""
    assert said(Path(__file__).parent / "replay_on_device.py", card=False).strip() == "replayed"


def test_the_driver_has_what_is_called():
    driver = pytest.importorskip("cuda.bindings.driver")
    for name in ("StreamCreate", "StreamBeginCapture", "StreamEndCapture", "GraphInstantiate", "GraphDestroy", "GraphLaunch", "GraphExecDestroy"):
        assert callable(getattr(driver, f"cu{name}"))
    assert driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
    assert driver.CUstream_flags.CU_STREAM_NON_BLOCKING

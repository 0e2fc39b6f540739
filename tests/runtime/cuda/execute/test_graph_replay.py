"""CUDA graph replay: capture, reuse and release of graphs."""

import pytest

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
from candle_convert.tests.builders.paths import DEVICE_SCRIPTS
from candle_convert.tests.device_scripts.runner import run_script


def test_segments_are_captured_once_and_replayed():
    """Under the simulator also where there is a card: what the driver does is not what is looked at."""
    assert run_script(DEVICE_SCRIPTS / "cuda_graph_replay.py", card=False).strip() == "replayed"


def test_the_driver_has_what_is_called():
    driver = pytest.importorskip("cuda.bindings.driver")
    for name in (
        "StreamCreate",
        "StreamBeginCapture",
        "StreamEndCapture",
        "GraphInstantiate",
        "GraphDestroy",
        "GraphLaunch",
        "GraphExecDestroy",
    ):
        assert callable(getattr(driver, f"cu{name}"))
    assert driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
    assert driver.CUstream_flags.CU_STREAM_NON_BLOCKING

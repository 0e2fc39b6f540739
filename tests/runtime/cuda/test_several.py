"""Several cards: which one work is given to, and ranks connected by NCCL."""

from pathlib import Path

import pytest

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
from on_device import said


def test_work_goes_to_its_card():
    """Under the simulator also where there are cards: they are stand-ins that are looked at."""
    lines = said(Path(__file__).parent / "several_on_device.py", card=False).splitlines()
    assert lines == ["sessions work on their card", "ranks put arrays together"]


def test_streams_are_numbers():
    """What plans hand to NCCL, cuBLASLt and cuDNN."""
    driver = pytest.importorskip("cuda.bindings.driver")
    from candle_convert.runtime.cuda.machine import SIMULATED

    if SIMULATED:
        pytest.skip("the simulator has no streams")
    from numba.cuda.cudadrv.driver import Stream

    assert int(Stream(driver.CUstream(1234), external=True)) == 1234

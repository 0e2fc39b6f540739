"""Several cards: which one work is given to, and ranks connected by NCCL."""

import warnings
from pathlib import Path

import pytest

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

from candle_convert.runtime.cuda.generated import made
from candle_convert.runtime.cuda.machine import SIMULATED
from on_device import said


def test_work_goes_to_its_card():
    """Under the simulator also where there are cards: they are stand-ins that are looked at."""
    lines = said(Path(__file__).parent / "several_on_device.py", card=False).splitlines()
    assert lines == ["sessions work on their card", "ranks put arrays together"]


@pytest.mark.skipif(SIMULATED, reason="the simulator launches in its own way")
def test_launches_are_what_numba_takes():
    """Streams are numbers to NCCL, cuBLASLt and cuDNN; nothing is said about grids that are small because the work is."""
    from cuda.bindings import driver
    from numba.cuda.cudadrv.driver import Stream

    stream = Stream(driver.CUstream(1234), external=True)
    assert int(stream) == 1234
    kernel = made("nothing", "def compute(x):\n    x[0] = 1\n", (32,))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        launch = kernel._compiled[3, kernel.threads, stream]
    assert (launch.griddim, launch.blockdim, int(launch.stream.handle)) == ((3, 1, 1), (32, 1, 1), 1234)

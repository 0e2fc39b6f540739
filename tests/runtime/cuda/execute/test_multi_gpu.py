"""Several GPUs: device selection, and ranks connected by NCCL."""

import warnings

import pytest

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

from candle_convert.runtime.cuda.device.device import SIMULATED
from candle_convert.runtime.cuda.kernel.source_module import compile_source
from candle_convert.tests.builders.paths import DEVICE_SCRIPTS
from candle_convert.tests.device_scripts.runner import run_script


def test_work_goes_to_its_card():
    """Under the simulator also where there are cards: they are stand-ins that are looked at."""
    lines = run_script(DEVICE_SCRIPTS / "multi_gpu.py", card=False).splitlines()
    assert lines == ["sessions work on their card", "ranks put arrays together"]


@pytest.mark.skipif(SIMULATED, reason="the simulator launches in its own way")
def test_launches_are_what_numba_takes():
    """Streams are numbers to NCCL, cuBLASLt and cuDNN; nothing is said about grids that are small because the work
    is."""
    from cuda.bindings import driver
    from numba.cuda.cudadrv.driver import Stream

    stream = Stream(driver.CUstream(1234), external=True)
    assert int(stream) == 1234
    kernel = compile_source("nothing", "def compute(x):\n    x[0] = 1\n", (32,))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        launch = kernel._compiled[3, kernel.threads, stream]
    assert (launch.griddim, launch.blockdim, int(launch.stream.handle)) == ((3, 1, 1), (32, 1, 1), 1234)

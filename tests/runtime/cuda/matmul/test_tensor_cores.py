"""Tensor-core kernels: results in the simulator, which follows PTX's fragment layouts, and assembly for four GPU
generations."""

import re

import pytest

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
pytest.importorskip("gguf", reason="gguf is not installed")

from candle_convert.runtime.cuda.device.device import SIMULATED
from candle_convert.runtime.cuda.kernel.kernel import signature
from candle_convert.tests.builders.paths import DEVICE_SCRIPTS
from candle_convert.tests.builders.sampling import full
from candle_convert.tests.device_scripts.runner import run_script

FULL = full()
CHIPS = [(7, 5), (8, 0), (9, 0), (12, 1)]
SCRIPTS = (
    "tensor_cores",
    "attention_on_device",
    "cached_attention_on_device",
    "small_floats",
    "matmul_nbits",
    "operator_variants",
)
SAMPLE = {(7, 5): ["few rows"], (8, 0): ["bf16"], (9, 0): [], (12, 1): ["few rows of groups"]}


@pytest.mark.parametrize("script", SCRIPTS)
def test_kernels_compute_what_numpy_does(script):
    run_script(DEVICE_SCRIPTS / f"{script}.py")


@pytest.mark.skipif(SIMULATED, reason="the simulator compiles nothing")
@pytest.mark.parametrize("cc", CHIPS, ids=lambda cc: f"sm_{cc[0]}{cc[1]}")
def test_kernels_assemble(cc):
    """Registers of the products suffice but for some bytes; attention on tensor cores spills some hundred on 7.5 and
    8.0."""
    from candle_convert.tests.device_scripts.every_kernel import assembled
    from candle_convert.tests.device_scripts.tensor_core_kernels import LARGE

    for name in LARGE if FULL else SAMPLE[cc]:
        launch, *_ = LARGE[name]()
        if launch.kernel.least <= cc:
            said = assembled(launch.kernel.ptx(signature(launch.arguments), cc), cc)
            spilled = int(re.search(r"(\d+) bytes spill stores", said)[1])
            assert spilled <= (512 if name.startswith("prompt") else 64), (name, said)

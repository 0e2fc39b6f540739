"""CUDA device discovery and selection, with an error and a hint if no device is usable."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
from typing import Any

from ...base.dataclass import dataclass
from ...base.errors import UnsupportedError, UsageError
from ...base.process_cache import PROCESS, process_cache

INSTALL = "pip install 'candle-convert[cuda]'"
SIMULATED = os.environ.get("NUMBA_ENABLE_CUDASIM", "0") not in ("", "0")
"""Whether kernels run in Numba's simulator, as Python threads: slow, but without a GPU."""


@dataclass(frozen=True)
class CudaSupport:
    """CUDA support of this machine.

    Attributes:
        package: version of numba-cuda, None where it is not installed.
        devices: for each card its name, compute capability and memory in bytes.
        why: what is missing, None when graphs can run.
        hint: what to do about it.
    """

    package: str | None
    devices: tuple[dict[str, Any], ...]
    simulated: bool
    why: str | None = None
    hint: str | None = None
    code: str | None = None


@process_cache(kept=PROCESS)
def cuda_support() -> CudaSupport:
    """CUDA support, detected once; imports numba-cuda if it is installed."""
    if importlib.util.find_spec("numba_cuda") is None:
        return CudaSupport(None, (), SIMULATED, "numba-cuda is not installed", INSTALL, "E-DEVICE-PACKAGE")
    from importlib.metadata import version

    package = version("numba-cuda")
    if SIMULATED:
        return CudaSupport(package, (), True)
    from numba import cuda

    try:
        devices = tuple(_described(device) for device in cuda.gpus) if cuda.is_available() else ()
    except cuda.cudadrv.error.CudaSupportError as error:
        return CudaSupport(
            package,
            (),
            False,
            f"the CUDA driver does not start: {error}",
            "Update the NVIDIA driver",
            "E-DEVICE-DRIVER",
        )
    if not devices:
        why, hint = (
            "no CUDA device was found",
            "Install the NVIDIA driver if the machine has a card, or use --device cpu",
        )
        return CudaSupport(package, (), False, why, hint, "E-DEVICE-NONE")
    broken = _broken()
    if broken is not None:
        why = f"numba-cuda {package} does not load: {broken}"
        return CudaSupport(package, (), False, why, f"Install the versions that fit: {INSTALL}", "E-DEVICE-PACKAGE")
    return CudaSupport(package, devices, False)


def _broken() -> str | None:
    """Why numba-cuda cannot compile, None where it can: 0.30 fails with NumPy 2.5, which lacks what it names."""
    try:
        importlib.import_module("numba.cuda.cudaimpl")
    except (ImportError, AttributeError) as error:
        return str(error)
    return None


def _described(device: Any) -> dict[str, Any]:
    from numba import cuda

    with device:
        free, total = cuda.current_context().get_memory_info()
    name = device.name.decode() if isinstance(device.name, bytes) else str(device.name)
    return {"name": name, "cc": list(device.compute_capability), "memory": int(total), "free": int(free)}


def device_index(device: str) -> int:
    """The device index of ``cuda`` or ``cuda:1``.

    Raises UsageError for other names, UnsupportedError if the device cannot be used.
    """
    kind, _, number = device.partition(":")
    if kind != "cuda" or (number and not number.isdecimal()):
        raise UsageError("E-DEVICE-NAME", None, f"unknown device {device!r}", expected="cpu, cuda or cuda:N")
    found = cuda_support()
    if found.why is not None:
        raise UnsupportedError(found.code or "E-DEVICE-NONE", None, found.why, hint=found.hint)
    index = int(number or 0)
    count = 1 if found.simulated else len(found.devices)
    if index >= count:
        raise UsageError("E-DEVICE-NAME", None, f"unknown device {device!r}", expected=f"cuda:0 to cuda:{count - 1}")
    return index


def use_device(number: int) -> contextlib.AbstractContextManager[None]:
    """Context manager that makes a device current for this thread's launches and library calls."""
    from numba import cuda

    found: contextlib.AbstractContextManager[None] = cuda.gpus[number]
    return found


@process_cache(kept=PROCESS)
def capability() -> tuple[int, int]:
    """The lowest compute capability of the devices; 8.0 without one, for plans that are only inspected."""
    found: tuple[int, int] = min(
        ((device["cc"][0], device["cc"][1]) for device in cuda_support().devices), default=(8, 0)
    )
    return found

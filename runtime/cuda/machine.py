"""The device: whether there is one, which one, and what to do where there is none."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
from typing import Any

from ..errors import UnsupportedError, UsageError
from ..record import dataclass

INSTALL = "pip install 'candle-convert[cuda]'"
SIMULATED = os.environ.get("NUMBA_ENABLE_CUDASIM", "0") not in ("", "0")
"""Whether kernels run as Python threads: slow, but on any machine."""


@dataclass(frozen=True)
class State:
    """What there is of CUDA on this machine.

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


@functools.cache
def state() -> State:
    """Looks once, loading numba-cuda where it is installed."""
    if importlib.util.find_spec("numba_cuda") is None:
        return State(None, (), SIMULATED, "numba-cuda is not installed", INSTALL, "E-DEVICE-PACKAGE")
    from importlib.metadata import version

    package = version("numba-cuda")
    if SIMULATED:
        return State(package, (), True)
    from numba import cuda

    try:
        devices = tuple(_described(device) for device in cuda.gpus) if cuda.is_available() else ()
    except cuda.cudadrv.error.CudaSupportError as error:
        return State(package, (), False, f"the CUDA driver does not start: {error}", "Update the NVIDIA driver", "E-DEVICE-DRIVER")
    if not devices:
        why, hint = "no CUDA device was found", "Install the NVIDIA driver if the machine has a card, or use --device cpu"
        return State(package, (), False, why, hint, "E-DEVICE-NONE")
    return State(package, devices, False)


def _described(device: Any) -> dict[str, Any]:
    from numba import cuda

    with device:
        free, total = cuda.current_context().get_memory_info()
    name = device.name.decode() if isinstance(device.name, bytes) else str(device.name)
    return {"name": name, "cc": list(device.compute_capability), "memory": int(total), "free": int(free)}


def number_of(device: str) -> int:
    """The number of a device by name, ``cuda`` or ``cuda:1``; raises UsageError for others and UnsupportedError where it cannot be used."""
    kind, _, number = device.partition(":")
    if kind != "cuda" or (number and not number.isdecimal()):
        raise UsageError("E-DEVICE-NAME", None, f"unknown device {device!r}", expected="cpu, cuda or cuda:N")
    found = state()
    if found.why is not None:
        raise UnsupportedError(found.code or "E-DEVICE-NONE", None, found.why, hint=found.hint)
    index = int(number or 0)
    count = 1 if found.simulated else len(found.devices)
    if index >= count:
        raise UsageError("E-DEVICE-NAME", None, f"unknown device {device!r}", expected=f"cuda:0 to cuda:{count - 1}")
    return index


def on(number: int) -> contextlib.AbstractContextManager[None]:
    """A device as the one that this thread works on, for a ``with``: kernels, libraries and graphs are launched on that one."""
    from numba import cuda

    found: contextlib.AbstractContextManager[None] = cuda.gpus[number]
    return found


@functools.cache
def capability() -> tuple[int, int]:
    """The lowest compute capability of the cards here; 8.0 where there is none, for plans that are only looked at."""
    found: tuple[int, int] = min(((device["cc"][0], device["cc"][1]) for device in state().devices), default=(8, 0))
    return found

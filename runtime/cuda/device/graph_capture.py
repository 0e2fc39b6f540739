"""CUDA graph capture: launches between `begin` and `end` are recorded as a graph, which `launch` replays.

Source: CUDA driver API, stream capture and graph management, through `cuda.bindings`, a dependency of numba-cuda.
All calls to the driver are in this module.
"""

from __future__ import annotations

from typing import Any

from .device import SIMULATED


class CaptureError(Exception):
    """The driver refused; the message is the name of its status."""


def available() -> bool:
    """Whether launches can be captured: on cards, not under the simulator."""
    return not SIMULATED


def _done(answer: Any) -> Any:
    """The result of a driver call; raises CaptureError for an error status."""
    status, *rest = answer
    if int(status):
        raise CaptureError(getattr(status, "name", str(status)))
    return rest[0] if rest else None


def stream(number: int) -> Any:
    """A non-blocking stream of a device, for capture."""
    from cuda.bindings import driver
    from numba import cuda

    with cuda.gpus[number]:
        cuda.current_context()
        handle = _done(driver.cuStreamCreate(int(driver.CUstream_flags.CU_STREAM_NON_BLOCKING)))
        return cuda.external_stream(int(handle))


def begin(on: Any) -> None:
    """Start capture of this thread's launches on a stream."""
    from cuda.bindings import driver

    _done(driver.cuStreamBeginCapture(int(on), driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL))


def end(on: Any) -> Any:
    """End capture; return the graph."""
    from cuda.bindings import driver

    return _done(driver.cuStreamEndCapture(int(on)))


def instantiate(graph: Any) -> Any:
    """The executable of a graph; the graph is destroyed."""
    from cuda.bindings import driver

    try:
        return _done(driver.cuGraphInstantiate(graph, 0))
    finally:
        _done(driver.cuGraphDestroy(graph))


def launch(executable: Any) -> None:
    """Launch an executable graph on the default stream, asynchronously."""
    from cuda.bindings import driver

    _done(driver.cuGraphLaunch(executable, 0))


def release(executable: Any) -> None:
    """Destroy an executable graph."""
    from cuda.bindings import driver

    _done(driver.cuGraphExecDestroy(executable))

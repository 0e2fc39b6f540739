"""The CUDA driver's graphs: what is launched between `begin` and `end` is not run, but kept as a graph, which one call launches again and again.

Source: CUDA driver API, stream capture and graph management, through `cuda.bindings`, which numba-cuda brings. Every function that touches the
driver is here.
"""

from __future__ import annotations

from typing import Any

from .machine import SIMULATED


class CaptureError(Exception):
    """The driver refused; the message is its name for why."""


def available() -> bool:
    """Whether launches can be captured: on cards, not under the simulator."""
    return not SIMULATED


def _done(answer: Any) -> Any:
    """What a call of the driver gives beside its status."""
    status, *rest = answer
    if int(status):
        raise CaptureError(getattr(status, "name", str(status)))
    return rest[0] if rest else None


def stream(number: int) -> Any:
    """A stream of a device to capture on, which nothing else waits for."""
    from cuda.bindings import driver
    from numba import cuda

    with cuda.gpus[number]:
        cuda.current_context()
        handle = _done(driver.cuStreamCreate(int(driver.CUstream_flags.CU_STREAM_NON_BLOCKING)))
        return cuda.external_stream(int(handle))


def begin(on: Any) -> None:
    """Keep this thread's launches on a stream from now on."""
    from cuda.bindings import driver

    _done(driver.cuStreamBeginCapture(int(on), driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL))


def end(on: Any) -> Any:
    """The graph of what was launched."""
    from cuda.bindings import driver

    return _done(driver.cuStreamEndCapture(int(on)))


def instantiate(graph: Any) -> Any:
    """What can be launched; the graph itself is given back."""
    from cuda.bindings import driver

    try:
        return _done(driver.cuGraphInstantiate(graph, 0))
    finally:
        _done(driver.cuGraphDestroy(graph))


def launch(executable: Any) -> None:
    """Run all of it on the default stream, after what is there; returns before it is done."""
    from cuda.bindings import driver

    _done(driver.cuGraphLaunch(executable, 0))


def release(executable: Any) -> None:
    """Give it back."""
    from cuda.bindings import driver

    _done(driver.cuGraphExecDestroy(executable))

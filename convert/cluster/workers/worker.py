"""Worker processes: the functions that a cluster calls in them."""

from __future__ import annotations

import os
import threading
from contextlib import nullcontext
from typing import Any

from ....runtime.base.errors import UnsupportedError
from ....runtime.base.limits import Limits, in_force
from ....runtime.base.process_cache import owned
from .version import version
from .work import Work

_LOCK = threading.Lock()
_EXCLUSIVE = threading.Lock()
_KEPT: dict[str, Any] = owned({})


def perform(wanted: str, key: str, work: Work, piece: Any, limits: Limits) -> Any:
    """The result of one piece of `work` under the `limits` of the client. Pieces with the same `key` share what the
    worker prepares.

    Raises UnsupportedError where this process runs another version of the package than the client, whose version is
    `wanted`.
    """
    refuse_version(wanted, version(), address())
    with _EXCLUSIVE if work.exclusive else nullcontext(), in_force(limits):
        return work.run(_prepared(key, work), piece)


def warm_up() -> None:
    """Import what a conversion is planned with: formats, architectures that weights imply, and quantization."""
    from ....runtime.contract.weight_binding import implied
    from ....runtime.ir.graph import Graph
    from ...open.detect_format import formats
    from ...quantize import plan  # noqa: F401
    from ...translate import translate  # noqa: F401

    formats()
    implied({}, Graph())


def forget(keys: tuple[str, ...]) -> None:
    """Free the prepared state of these keys. Takes no lock: this runs in the thread that answers the scheduler."""
    for key in keys:
        _KEPT.pop(key, None)


def refuse_version(wanted: str, found: str, address: str) -> None:
    """UnsupportedError where the worker at `address` runs another version of the package than `wanted`, with both."""
    if found != wanted:
        raise UnsupportedError(
            "E-CLUSTER-VERSION",
            None,
            f"the worker at {address} runs candle-convert {found}, the client runs {wanted}",
            hint="Install the same version on all workers",
        )


def facts(readable: tuple[str, ...], writable: str | None) -> tuple[str, str | None]:
    """The version of this worker, and why it cannot take part, None where it can.

    Args:
        readable: files that have to be here; writable: a folder that has to be, or whose nearest existing parent is.
    """
    return version(), _problem(readable, writable)


def _problem(readable: tuple[str, ...], writable: str | None) -> str | None:
    for path in readable:
        if not os.access(path, os.R_OK):
            return f"{path} cannot be read"
    if writable is not None:
        folder = writable
        while not os.path.isdir(folder):
            folder = os.path.dirname(folder)
        if not os.access(folder, os.W_OK):
            return f"{writable} cannot be written"
    return None


def address() -> str:
    """The address of this worker in the cluster."""
    from distributed import get_worker

    return str(get_worker().address)


def threads() -> int:
    """Number of tasks that this worker runs at the same time."""
    from distributed import get_worker

    return int(get_worker().state.nthreads)


def _prepared(key: str, work: Work) -> Any:
    """The preparation of `work`, made once per process; only the latest is kept."""
    with _LOCK:
        found = _KEPT.get(key, _KEPT)
        if found is _KEPT:
            _KEPT.clear()
            found = _KEPT[key] = work.prepare(threads())
        return found

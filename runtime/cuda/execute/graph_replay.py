"""CUDA graph replay: segments of launches are captured once per memory layout and replayed as one graph.

Kernels read positions and lengths from device memory, so that the graph of a decoding step stays valid for the next
token. A segment first runs launch by launch, while its kernels are compiled and loaded; the second run on the same
memory captures it.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from ..device import graph_capture

MIN_LAUNCHES = 4
"""Launches of the shortest segment that is captured."""
MAX_GRAPHS = 8
"""Graphs cached per plan, for the most recent memory."""
_capturing = threading.Lock()


class Replays:
    """The CUDA graphs of one plan.

    Attributes:
        replayed: how often a graph was launched; captured: how often one was made.
        refused: why the driver did not make one, None while it did; the launches then run one by one.
    """

    def __init__(self, device: int) -> None:
        self.device = device
        self.replayed = 0
        self.captured = 0
        self.refused: str | None = None
        self._graphs: OrderedDict[Hashable, Any] = OrderedDict()
        self._stream: Any = None
        self._lock = threading.Lock()
        weakref.finalize(self, _released, self._graphs)

    def run(self, key: Hashable, launches: Callable[[Any], None]) -> None:
        """Run a segment on the memory identified by `key`; `launches` launches it on a stream, 0 for the default
        one."""
        if not graph_capture.available() or self.refused is not None:
            launches(0)
            return
        with self._lock:
            if key not in self._graphs:
                self._remember(key, None)
                executable = None
            else:
                executable = self._graphs[key] or self._made(key, launches)
                self._graphs.move_to_end(key)
            if executable is not None:
                graph_capture.launch(executable)
                self.replayed += 1
                return
        launches(0)

    def _made(self, key: Hashable, launches: Callable[[Any], None]) -> Any:
        try:
            with _capturing:
                if self._stream is None:
                    self._stream = graph_capture.stream(self.device)
                graph_capture.begin(self._stream)
                try:
                    launches(self._stream)
                finally:
                    graph = graph_capture.end(self._stream)
                executable = graph_capture.instantiate(graph)
        except graph_capture.CaptureError as error:
            self.refused = str(error)
            return None
        self.captured += 1
        self._remember(key, executable)
        return executable

    def _remember(self, key: Hashable, executable: Any) -> None:
        self._graphs[key] = executable
        while len(self._graphs) > MAX_GRAPHS:
            _, old = self._graphs.popitem(last=False)
            if old is not None:
                graph_capture.release(old)


def _released(graphs: OrderedDict[Hashable, Any]) -> None:
    for executable in graphs.values():
        if executable is not None:
            graph_capture.release(executable)


def segments(steps: Sequence[Any], kind: type) -> list[Any]:
    """The steps in order, with consecutive ones of type `kind` grouped in a tuple."""
    found: list[Any] = []
    for step in steps:
        if not isinstance(step, kind):
            found.append(step)
        elif found and isinstance(found[-1], tuple):
            found[-1] = (*found[-1], step)
        else:
            found.append((step,))
    return found

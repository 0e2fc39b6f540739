"""Replays: stretches of launches that are captured once and then launched as one graph, as long as they work on the same memory.

Kernels read positions and lengths from device memory, so that the graph of a step stays valid for the next token. A stretch runs as it is the first
time, when its kernels are compiled and loaded; the second time with the same memory it is captured.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from . import capture

SHORTEST = 4
"""Launches from which a stretch is worth a graph."""
KEPT = 8
"""Graphs of a plan, for the memory seen last."""
_capturing = threading.Lock()


class Replays:
    """The graphs of one plan.

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
        """Run a stretch on the memory that `key` names; `launches` launches all of it on a stream, 0 for the default one."""
        if not capture.available() or self.refused is not None:
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
                capture.launch(executable)
                self.replayed += 1
                return
        launches(0)

    def _made(self, key: Hashable, launches: Callable[[Any], None]) -> Any:
        try:
            with _capturing:
                if self._stream is None:
                    self._stream = capture.stream(self.device)
                capture.begin(self._stream)
                try:
                    launches(self._stream)
                finally:
                    graph = capture.end(self._stream)
                executable = capture.instantiate(graph)
        except capture.CaptureError as error:
            self.refused = str(error)
            return None
        self.captured += 1
        self._remember(key, executable)
        return executable

    def _remember(self, key: Hashable, executable: Any) -> None:
        self._graphs[key] = executable
        while len(self._graphs) > KEPT:
            _, old = self._graphs.popitem(last=False)
            if old is not None:
                capture.release(old)


def _released(graphs: OrderedDict[Hashable, Any]) -> None:
    for executable in graphs.values():
        if executable is not None:
            capture.release(executable)


def stretches(steps: Sequence[Any], kind: type) -> list[Any]:
    """The steps in order, neighbours of a kind together in a tuple."""
    found: list[Any] = []
    for step in steps:
        if not isinstance(step, kind):
            found.append(step)
        elif found and isinstance(found[-1], tuple):
            found[-1] = (*found[-1], step)
        else:
            found.append((step,))
    return found

"""Work whose pieces fail in a stated way, for tests of clusters."""

import errno
import os
import signal
import time
from dataclasses import dataclass

from candle_convert.convert.cluster.workers.work import Work
from candle_convert.runtime.base.limits import current


@dataclass(frozen=True)
class Failing(Work):
    """Piece 3 fails, by `how`: ``memory``, ``disk`` or ``killed``, as often as `folder` does not have so many files
    more than `times`; other pieces return their double."""

    how: str
    folder: str
    times: int = 1

    def prepare(self, threads):
        return None

    def run(self, prepared, piece):
        if piece == 3 and len(os.listdir(self.folder)) < self.times:
            open(os.path.join(self.folder, str(len(os.listdir(self.folder)))), "w").close()
            if self.how == "memory":
                raise MemoryError
            if self.how == "disk":
                raise OSError(errno.ENOSPC, "No space left on device")
            os.kill(os.getpid(), signal.SIGKILL)
        return piece * 2


@dataclass(frozen=True)
class Entries(Work):
    """The limit of entries while a worker prepares, and while it does a piece."""

    def prepare(self, threads):
        return current().entries

    def run(self, prepared, piece):
        return prepared, current().entries


@dataclass(frozen=True)
class Held(Work):
    """Piece 0 waits until a file is there; each piece returns its number."""

    path: str

    def prepare(self, threads):
        return None

    def run(self, prepared, piece):
        deadline = time.monotonic() + 60
        while piece == 0 and not os.path.exists(self.path) and time.monotonic() < deadline:
            time.sleep(0.01)
        return piece


@dataclass(frozen=True)
class Slow(Work):
    """Pieces that take a hundredth of a second, and a second in the process `slow`; each returns its number and the
    process."""

    slow: int

    def prepare(self, threads):
        return None

    def run(self, prepared, piece):
        time.sleep(1 if os.getpid() == self.slow else 0.01)
        return piece, os.getpid()

"""An engine whose thread spins all the time, for tests of benchmarks: it counts how far others spun in its turns."""

import contextlib
import mmap
import struct
import threading
import time
from pathlib import Path

COUNT = struct.Struct("<q")
TURN = 0.1


def serve(pipe, engine, folder, *_):
    """In place of an engine's process: the seconds of a run are the turns of other engines' threads meanwhile."""
    mine = Path(folder, engine)
    mine.write_bytes(bytes(COUNT.size))
    with mine.open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        threading.Thread(target=_spin, args=(memory,), daemon=True).start()
        pipe.send((0.0, 0.0))
        while (request := pipe.recv()) != "peak":
            pipe.send([_others(Path(folder), mine) for _ in range(request[1])])
        pipe.send(COUNT.unpack_from(memory)[0])
        with contextlib.suppress(EOFError):
            pipe.recv()


def _spin(memory):
    count = 0
    while True:
        count += 1
        COUNT.pack_into(memory, 0, count)


def _others(folder, mine):
    def counted():
        return sum(COUNT.unpack(path.read_bytes())[0] for path in folder.iterdir() if path != mine)

    before = counted()
    time.sleep(TURN)
    return counted() - before

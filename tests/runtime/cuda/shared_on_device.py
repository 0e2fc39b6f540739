"""Threads that ask for one shared array at the same moment, under Numba's simulator; prints how many arrays each round made."""

import sys
import threading

from candle_convert.runtime.cuda.simulator import simulated
from numba.cuda.simulator.kernelapi import FakeCUDAShared

ROUNDS, THREADS = 200, 16


def arrays_of_a_round():
    block, found, together = FakeCUDAShared(0), [], threading.Barrier(THREADS)

    def ask():
        together.wait()
        found.append(block.array(4, float))

    threads = [threading.Thread(target=ask) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len({id(array) for array in found})


if __name__ == "__main__":
    sys.setswitchinterval(1e-6)
    simulated(arrays_of_a_round)
    print(sorted({arrays_of_a_round() for _ in range(ROUNDS)}))

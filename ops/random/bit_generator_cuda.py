"""Random number streams on the device: Mersenne Twister for seeds (equal to the CPU's), Philox without a seed.

Matsumoto, Nishimura: Mersenne Twister (1998): one block makes 624 words after another, each in three turns whose words
do not depend on each other. Salmon et al.: Parallel random numbers: as easy as 1, 2, 3 (2011), with 10 rounds: every
thread makes its own words, from a key that each run draws.
"""

from __future__ import annotations

import math

import numpy as np

from ...runtime.cuda.device.device import SIMULATED
from ...runtime.cuda.element.kernel_text import PACKAGE
from ...runtime.cuda.kernel import source_module
from ...runtime.cuda.kernel.kernel import Launch
from ...runtime.cuda.kernel.operand import Writer
from ...runtime.cuda.kernel.per_thread import per_thread_launch
from ...runtime.cuda.plan.kernel_api import Step
from ...runtime.plan.kernel_api import Buffer, Chain
from .bit_generator import stream

WIDTH = 4 if SIMULATED else 256
TWIST = """
    state = cuda.shared.array(1248, np.int64)
    t = np.int64(cuda.threadIdx.x)
    for i in range(t, 624, WIDTH):
        state[i] = np.int64(key[i])
    cuda.syncthreads()
    old, new = np.int64(0), np.int64(624)
    for start in range(0, count, 312):
        for turn in range(3):
            for i in range(227 * turn + t, min(624, 227 * turn + 227), WIDTH):
                following = state[old + i + 1] if i < 623 else state[new]
                far = state[old + i + 397] if i < 227 else state[new + i - 227]
                y = (state[old + i] & 0x80000000) | (following & 0x7FFFFFFF)
                state[new + i] = far ^ (y >> 1) ^ (0x9908B0DF if y & 1 else 0)
            cuda.syncthreads()
        for i in range(t, min(312, count - start), WIDTH):
            high, low = tempered(state[new + 2 * i]) >> 5, tempered(state[new + 2 * i + 1]) >> 6
            numbers[start + i] = (high * 67108864.0 + low) / 9007199254740992.0
        old, new = new, old
"""
TEMPERED = """
from {package}.element.bits import inlined

@inlined
def tempered(y):
    y ^= y >> 11
    y ^= (y << 7) & 0x9D2C5680
    y ^= (y << 15) & 0xEFC60000
    return y ^ (y >> 18)
"""
PHILOX = """
    a, b, c, d = i & 0xFFFFFFFF, i >> 32, np.int64(0), np.int64(0)
    one, two = key[0] & 0xFFFFFFFF, key[1] & 0xFFFFFFFF
    for turn in range(10):
        p, q = np.int64(0xD2511F53) * a, np.int64(0xCD9E8D57) * c
        a, c = ((q >> 32) & 0xFFFFFFFF) ^ b ^ one, ((p >> 32) & 0xFFFFFFFF) ^ d ^ two
        b, d = q & 0xFFFFFFFF, p & 0xFFFFFFFF
        one, two = (one + 0x9E3779B9) & 0xFFFFFFFF, (two + 0xBB67AE85) & 0xFFFFFFFF
    numbers[2 * i] = ((a >> 5) * 67108864.0 + (b >> 6)) / 9007199254740992.0
    if 2 * i + 1 < amount:
        numbers[2 * i + 1] = ((c >> 5) * 67108864.0 + (d >> 6)) / 9007199254740992.0
"""


def drawn(step: Step, count: int, seed: float | None) -> tuple[list[Launch | Chain], Buffer]:
    """Launches that draw so many f64 numbers from [0, 1), and the numbers."""
    numbers = step.temporary(np.float64, (count,))
    if seed is None or not math.isfinite(seed):
        return [
            per_thread_launch(
                "numbers of a counter",
                -(-count // 2),
                {"amount": count, "key": step.random_bits(2), "numbers": numbers},
                PHILOX,
            )
        ], numbers
    writer = Writer()
    for name, value in (
        ("count", count),
        ("key", step.constant_buffer(np.array(stream(seed).get_state()[1], np.uint32))),  # type: ignore[index]
        ("numbers", numbers),
    ):
        writer.parameter(name, value)
    writer.add(0, *TWIST.replace("WIDTH", str(WIDTH)).strip("\n").split("\n"))
    head = TEMPERED.format(package=PACKAGE)
    return [
        Launch(
            source_module.compile_source("numbers of a seed", f"{head}\n{writer.text()}", (WIDTH,)), writer.values, 1
        )
    ], numbers

"""Every operator with extreme attributes, values and shapes: results or errors of ours, in little memory and time, in a
limited process."""

from __future__ import annotations

import pytest
from candle_convert.tests.fuzz.extreme_operators import KEYS
from candle_convert.tests.fuzz.harness import Case, Forkserver, seeds

ATTEMPT = "candle_convert.tests.fuzz.extreme_operators:attempt"
EACH = 3
"""Changed examples of an operator in CI, and of each seed in an exhaustive sweep."""
TOGETHER = 16
"""Operators that one process tries."""
NATIVE = 3 << 30
"""Address space of attempts that compile kernels."""


def attempts(first: int, how: str) -> Case:
    """All operators, from some example on."""
    starts = range(0, len(KEYS), TOGETHER)
    return Case({}, [(ATTEMPT, str(start), str(start + TOGETHER), str(first), str(EACH), how) for start in starts])


@pytest.mark.parametrize("how", ["numpy", "native"])
def test_extreme_values(how, full):
    if how == "native" and not full:
        pytest.skip("compiling the kernels of all operators takes minutes")
    wrong = []
    seconds = 60 if how == "numpy" else 3600
    with Forkserver(1 << 30 if how == "numpy" else NATIVE, seconds=seconds) as server:
        for seed in seeds(full, 1):
            for outcome in server.run(attempts(EACH * seed, how)):
                fault = outcome.fault(seconds)
                if fault is not None:
                    wrong.append(f"{' '.join(outcome.action)} {fault}\n{outcome.stderr[-5000:]}")
    assert not wrong, "\n\n".join(wrong)

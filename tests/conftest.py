"""Fixtures that all tests share."""

import os
from collections.abc import Iterator

import pytest
from hostile import Sandbox


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Sandbox]:
    """A memory-limited process that opens hostile files."""
    made = Sandbox()
    yield made
    made.close()


@pytest.fixture(scope="session")
def full(request: pytest.FixtureRequest) -> bool:
    """Whether sweeps are exhaustive: with ``-m slow``, or CANDLE_FULL=1 in the environment."""
    return os.environ.get("CANDLE_FULL") == "1" or "slow" in request.config.getoption("-m").replace("not slow", "")


@pytest.fixture
def seed(full: bool) -> int:
    """The seed of random tests, shown when one fails: CANDLE_SEED, always the same otherwise, a new one in exhaustive sweeps."""
    chosen = int(os.environ.get("CANDLE_SEED", int.from_bytes(os.urandom(4), "little") if full else 1))
    print(f"CANDLE_SEED={chosen}")
    return chosen

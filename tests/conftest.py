"""Fixtures that all tests share."""

from collections.abc import Iterator

import pytest
from hostile import Sandbox


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Sandbox]:
    """A memory-limited process that opens hostile files."""
    made = Sandbox()
    yield made
    made.close()

"""The states of random number generators: this package's, Python's and NumPy's."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...tensors.operations.random import GENERATOR, Generator


def random_state(loader: Any = None) -> dict[str, Any]:
    """The states of all generators that a step may draw from, that of a loader too."""
    version, words, normal = random.getstate()
    found = {
        "default": GENERATOR.get_state(),
        "python": (version, np.array(words, np.uint32), normal),
        "numpy": np.random.get_state(),
    }
    generator = getattr(loader, "generator", None)
    if isinstance(generator, Generator):
        found["loader"] = generator.get_state()
    return found


def seed_everything(seed: int = 0, workers: bool = False, verbose: bool = True) -> int:
    """Seed the generators of this package, of Python and of NumPy; returns the seed.

    Args:
        workers, verbose: taken without effect: threads of loaders draw no numbers.
    """
    GENERATOR.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed & 0xFFFFFFFF)
    return seed


def draws_in_python(before: Mapping[str, Any]) -> bool:
    """Whether numbers were drawn from Python's or NumPy's generator since a state."""
    now = random_state()
    return any(_words(now[name]) != _words(before[name]) for name in ("python", "numpy"))


def _words(state: Any) -> list[Any]:
    return [each.tolist() if isinstance(each, np.ndarray) else each for each in state]


def set_random_state(state: Mapping[str, Any], loader: Any = None) -> None:
    """Go on from states."""
    GENERATOR.set_state(state["default"])
    version, words, normal = state["python"]
    random.setstate((version, tuple(words.tolist()), normal))
    np.random.set_state(state["numpy"])
    generator = getattr(loader, "generator", None)
    if "loader" in state and isinstance(generator, Generator):
        generator.set_state(state["loader"])

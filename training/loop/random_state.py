"""The states of random number generators: this package's, Python's and NumPy's."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...optim.core.saved_value import checked, count
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


def check_random_state(state: Mapping[str, Any]) -> None:
    """Raise UsageError, ValueError and the like for what `set_random_state` does not take; no generator is changed."""
    for words, normal in (state["default"], state.get("loader", state["default"])):
        _check_words(words)
        Generator().set_state((words, checked("the next number of a generator", normal, None)))
    version, words, normal = state["python"]
    random.Random().setstate((version, tuple(words.tolist()), checked("the next number of Python", normal, None)))
    _check_words(state["numpy"])


def _check_words(state: Any) -> None:
    """NumPy itself does not check the position among the words."""
    kind, words, place, *normal = state
    if kind != "MT19937" or not 0 <= count("the place of a generator", place) <= len(words) or len(normal) != 2:
        raise ValueError("a state of random numbers is not one of MT19937")
    np.random.RandomState().set_state((kind, words, place, *normal))


def set_random_state(state: Mapping[str, Any], loader: Any = None) -> None:
    """Restore states."""
    GENERATOR.set_state(state["default"])
    version, words, normal = state["python"]
    random.setstate((version, tuple(words.tolist()), normal))
    np.random.set_state(state["numpy"])
    generator = getattr(loader, "generator", None)
    if "loader" in state and isinstance(generator, Generator):
        generator.set_state(state["loader"])

"""Process-wide state: one registry owns every cache and registry of the process, and one `reset` empties the caches.

    @process_cache                          the results of a function, as `functools.cache` keeps them
    @process_cache(kept=FILES)              ... of one that reads files of the package
    _plans: dict[Key, Plan] = owned({})     a container at module level

A function inside another one has `functools.cache`, which is freed with it: the registry would hold it, and what it
refers to, until the process ends. This module imports no other one of the package.
"""

from __future__ import annotations

import atexit
import enum
import functools
from collections.abc import Callable, Sized
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload

if TYPE_CHECKING:
    from functools import _lru_cache_wrapper


class Container(Sized, Protocol):
    """The containers that `owned` registers: dicts, lists, sets, weak dictionaries."""

    def clear(self) -> None: ...


Result = TypeVar("Result")
C = TypeVar("C", bound=Container)


class Kept(enum.Enum):
    """The kind of a cache's contents, which decides whether `reset` empties it."""

    RESULTS = "computed again when they are needed"
    FILES = "read from files of the package: modules and what they declare"
    PROCESS = "as long as the process: what modules declare while they are imported, handles, state of living objects"


RESULTS, FILES, PROCESS = Kept.RESULTS, Kept.FILES, Kept.PROCESS
_functions: list[tuple[Kept, _lru_cache_wrapper[Any]]] = []
_containers: list[tuple[Kept, Container]] = []
# What caches hold is freed with their modules, before the modules that it needs.
atexit.register(_functions.clear)
atexit.register(_containers.clear)


@overload
def process_cache(function: Callable[..., Result], /) -> _lru_cache_wrapper[Result]: ...


@overload
def process_cache(
    *, maxsize: int | None = None, kept: Kept = RESULTS
) -> Callable[[Callable[..., Result]], _lru_cache_wrapper[Result]]: ...


def process_cache(
    function: Callable[..., Any] | None = None, /, *, maxsize: int | None = None, kept: Kept = RESULTS
) -> Any:
    """`functools.lru_cache` of a function, which `reset` empties unless it is kept for the process."""

    def made(function: Callable[..., Result]) -> _lru_cache_wrapper[Result]:
        cached = functools.lru_cache(maxsize)(function)
        _functions.append((kept, cached))
        return cached

    return made if function is None else made(function)


def owned(container: C, kept: Kept = RESULTS) -> C:
    """A container at module level, which `reset` empties unless it is kept for the process."""
    _containers.append((kept, container))
    return container


def reset(*kinds: Kept) -> None:
    """Empty the caches of these kinds, or of `RESULTS` and `FILES`; imported modules stay as they are."""
    chosen = kinds or (RESULTS, FILES)
    for kept, cached in _functions:
        if kept in chosen:
            cached.cache_clear()
    for kept, container in _containers:
        if kept in chosen:
            container.clear()


def size(*kinds: Kept) -> int:
    """Entries of all caches of these kinds, or of `RESULTS` and `FILES`."""
    chosen = kinds or (RESULTS, FILES)
    return sum(cached.cache_info().currsize for kept, cached in _functions if kept in chosen) + sum(
        len(container) for kept, container in _containers if kept in chosen
    )

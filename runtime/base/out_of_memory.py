"""Out-of-memory detection: recognizes failed allocations and turns them into LimitError."""

from __future__ import annotations

import errno
import functools
import os
import re
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

from .errors import Error, LimitError
from .system_error import system_error
from .units import counted

P = ParamSpec("P")
R = TypeVar("R")
CODE = "E-MEMORY"
WORDS = re.compile(
    "cannot allocate memory|failed to map segment|cannot map zero-fill|can't start new thread|unable to "
    "allocate|std::bad_alloc"
    "|out of memory|not enough memory|without setting an exception|without exception set",
    re.IGNORECASE,
)
"""Messages of failed allocations: the loader's, threads', NumPy's, C++'s, LLVM's and Python's."""
START = 104 << 20
"""Bytes of address space that NumPy with one thread reserves as it is loaded; its library ends the process where it
cannot."""
SEARCHED_ERRORS = (ImportError, OSError, RuntimeError, SystemError)
"""Errors whose words are looked at."""
HINT = "Raise the limit (ulimit -v, or that of the container), close other programs, or use fewer --threads"


def shortage(error: BaseException) -> LimitError | None:
    """The error to raise instead of one from a failed allocation; None for any other."""
    for cause in _causes(error):
        if isinstance(cause, Error):
            return None
        if isinstance(cause, MemoryError) or getattr(cause, "errno", None) == errno.ENOMEM or _told(cause):
            return memory_error(_what(cause))
    return None


def memory_error(what: str) -> LimitError:
    """The error for a request that failed."""
    allowed = address_space()
    limit = "" if allowed is None else f"; this process may use {counted(allowed, 'byte')} of address space"
    return LimitError(CODE, None, f"out of memory: {what}{limit}", hint=HINT)


def address_space() -> int | None:
    """Bytes of address space that this process may use; None where they are not limited."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    allowed, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if allowed == resource.RLIM_INFINITY else allowed


def check_start() -> None:
    """LimitError where there is not enough address space to load NumPy."""
    allowed, taken = address_space(), _taken()
    if allowed is not None and taken is not None and allowed - taken < START:
        raise memory_error(
            f"{START:,} bytes of address space are needed to start, {max(0, allowed - taken):,} are left"
        )


def _taken() -> int | None:
    """Bytes of address space that this process has; None where the system does not say."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return None


def memory_limited(function: Callable[P, R]) -> Callable[P, R]:
    """The function, with LimitError in place of what a failed allocation raises, and with our errors in place of those
    that the system raises where nobody expected any."""

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except (MemoryError, *SEARCHED_ERRORS) as error:
            found = shortage(error) or system_error(error)
            if found is None:
                raise
            raise found from error

    return wrapped


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__ or cause.__context__


def _told(error: BaseException) -> bool:
    return isinstance(error, SEARCHED_ERRORS) and WORDS.search(str(error)) is not None


def _what(error: BaseException) -> str:
    """The request that failed, in one line."""
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:
        return os.strerror(errno.ENOMEM).lower()
    lines = [line for line in str(error).splitlines() if isinstance(error, MemoryError) or WORDS.search(line)]
    return (lines[-1].strip().rstrip(".") if lines else "") or "an allocation failed"

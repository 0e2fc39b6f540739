"""Work on many things by several threads, the calling one among them; the first error stops all."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

Item = TypeVar("Item")


def each(work: Callable[[Item], object], items: Iterable[Item], threads: int) -> None:
    """Call `work` with every item, in any order."""
    waiting, lock = iter(items), threading.Lock()
    errors: list[BaseException] = []

    def take() -> None:
        while not errors:
            with lock:
                item = next(waiting, lock)
            if item is lock:
                return
            try:
                work(item)  # type: ignore[arg-type]
            except BaseException as error:
                errors.append(error)

    others = [threading.Thread(target=take, daemon=True) for _ in range(threads - 1)]
    for thread in others:
        thread.start()
    try:
        take()
    except BaseException as interrupt:
        errors.append(interrupt)
    for thread in others:
        thread.join()
    if errors:
        raise errors[0]

"""Nesting: a result that is copied as a whole into a larger one (Concat) is made inside of it, so that nothing is left to copy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from .launch import Buffer, Launch, Room
from .memory import live_bytes
from .plan import Mark, PythonStep

Item = Launch | PythonStep | Mark
ROOM = 1.1
"""By how much the memory that lives at once may grow: what is nested takes up the whole of the larger result from then on."""


def nested(items: Sequence[Item], kept: Sequence[Any], written_once: Callable[[Room], bool]) -> dict[int, tuple[Room, int]]:
    """For the ids of rooms that can be part of another one, that one, which is no part itself, and the byte offset in it.

    Args:
        items: in the order in which they run. Where branches or loops are among them, nothing is nested.
        kept: what is used after them.
        written_once: whether nothing is written into a room after the results that it was made for.
    """
    copies = [(at, *item.copied) for at, item in enumerate(items) if isinstance(item, Launch) and item.copied is not None]
    if not copies or any(isinstance(item, Mark) for item in items):
        return {}
    spans = _spans(items, kept)
    inside: dict[int, tuple[Room, int]] = {}
    for at, source, target in copies:
        own, other = source.room, target.room
        whole = source.offset == 0 and source.nbytes == own.nbytes == target.nbytes
        movable = own.constant is None and own.slot is None and other.constant is None and own is not other and id(own) not in inside
        if whole and movable and (spans[id(own)][1] <= at or written_once(other)):
            inside[id(own)] = (other, target.offset)
    found = {key: _outermost(inside, key) for key in inside}
    return found if _pays(items, kept, spans, found) else {}


def _outermost(inside: dict[int, tuple[Room, int]], key: int) -> tuple[Room, int]:
    room, offset = inside[key]
    while id(room) in inside:
        room, more = inside[id(room)]
        offset += more
    return room, offset


def _buffers(item: Item) -> list[Buffer]:
    homes = item.arguments if isinstance(item, Launch) else [*item.inputs, *item.captured.values()] if isinstance(item, PythonStep) else item.uses
    return [home for home in homes if isinstance(home, Buffer)]


def _spans(items: Sequence[Item], kept: Sequence[Any]) -> dict[int, list[Any]]:
    """First and last use of every room, and the room."""
    spans: dict[int, list[Any]] = {}
    uses = [(at, buffer) for at, item in enumerate(items) for buffer in _buffers(item)]
    uses += [(len(items), home) for home in kept if isinstance(home, Buffer)]
    for at, buffer in uses:
        span = spans.setdefault(id(buffer.room), [at, at, buffer.room])
        span[1] = at
    return spans


def _pays(items: Sequence[Item], kept: Sequence[Any], spans: dict[int, list[Any]], found: dict[int, tuple[Room, int]]) -> bool:
    def rooms(moved: dict[int, tuple[Room, int]]) -> list[Room]:
        joint: dict[int, Room] = {}
        for key, (first, last, room) in spans.items():
            home = moved[key][0] if key in moved else room
            if home.constant is None and home.slot is None:
                one = joint.setdefault(id(home), Room(home.nbytes, first=first, last=last))
                one.first, one.last = min(one.first, first), max(one.last, last)
        return list(joint.values())

    return live_bytes(rooms(found), len(items) + 1) <= ROOM * live_bytes(rooms({}), len(items) + 1)


def moved(home: Any, inside: dict[int, tuple[Room, int]]) -> Any:
    """A buffer where its room is now; anything else as it is."""
    if not isinstance(home, Buffer) or id(home.room) not in inside:
        return home
    room, offset = inside[id(home.room)]
    return replace(home, room=room, offset=home.offset + offset)


def rewritten(item: Item, inside: dict[int, tuple[Room, int]]) -> Item | None:
    """An item with all buffers where they are now; None for a copy that is done."""
    if isinstance(item, PythonStep):
        item.inputs[:] = [moved(home, inside) for home in item.inputs]
        item.captured.update({value: moved(home, inside) for value, home in item.captured.items()})
        return item
    if not isinstance(item, Launch) or not any(id(buffer.room) in inside for buffer in _buffers(item)):
        return item
    if item.copied is not None:
        source, target = (moved(home, inside) for home in item.copied)
        if source.room is target.room and source.offset == target.offset:
            return None
    return replace(item, arguments=tuple(moved(argument, inside) for argument in item.arguments))

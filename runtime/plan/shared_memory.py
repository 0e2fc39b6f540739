"""Results that share memory: one that is copied into a larger one is computed there directly, and the copy is dropped;
one of an element-wise kernel replaces an operand that nothing reads afterwards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from .arena import live_bytes
from .kernel_api import Allocation, Buffer, Launch
from .plan import Mark, PythonStep

Item = Launch | PythonStep | Mark
MAX_GROWTH = 1.1
"""Largest allowed growth of peak memory: the larger result is allocated as soon as its first part is computed."""


def nested(
    items: Sequence[Item], kept: Sequence[Any], written_once: Callable[[Allocation], bool]
) -> dict[int, tuple[Allocation, int]]:
    """Maps ids of allocations that can be part of another one to that outermost allocation and a byte offset in it.

    Args:
        items: in the order in which they run. Where branches or loops are among them, nothing is nested.
        kept: what is used after them.
        written_once: whether nothing is written into an allocation after the results that it was made for.
    """
    copies = [
        (at, *item.copied) for at, item in enumerate(items) if isinstance(item, Launch) and item.copied is not None
    ]
    if not copies or any(isinstance(item, Mark) for item in items):
        return {}
    spans = _spans(items, kept)
    inside: dict[int, tuple[Allocation, int]] = {}
    for at, source, target in copies:
        own, other = source.allocation, target.allocation
        whole = source.offset == 0 and source.nbytes == own.nbytes == target.nbytes
        movable = (
            own.constant is None
            and own.slot is None
            and other.constant is None
            and own is not other
            and id(own) not in inside
        )
        if whole and movable and (spans[id(own)][1] <= at or written_once(other)):
            inside[id(own)] = (other, target.offset)
    found = {key: _outermost(inside, key) for key in inside}
    return found if _pays(items, kept, spans, found) else {}


def overwriting(items: Sequence[Item], kept: Sequence[Any]) -> dict[int, tuple[Allocation, int]]:
    """As `nested`, maps ids of allocations that can take the memory of an operand, whose last use it is, to the first
    allocation with that memory, and 0."""
    if any(isinstance(item, Mark) for item in items):
        return {}
    spans = _spans(items, kept)
    inside: dict[int, tuple[Allocation, int]] = {}
    for at, item in enumerate(items):
        for source, target in item.in_place if isinstance(item, Launch) else ():
            operand, own = source.allocation, target.allocation
            whole = (
                source.offset == target.offset == 0 and operand.nbytes == own.nbytes == source.nbytes == target.nbytes
            )
            movable = all(each.constant is None and each.slot is None for each in (operand, own)) and own is not operand
            if whole and movable and spans[id(operand)][1] == at == spans[id(own)][0]:
                inside[id(own)] = (operand, 0)
                break
    return {key: _outermost(inside, key) for key in inside}


def _outermost(inside: dict[int, tuple[Allocation, int]], key: int) -> tuple[Allocation, int]:
    allocation, offset = inside[key]
    while id(allocation) in inside:
        allocation, more = inside[id(allocation)]
        offset += more
    return allocation, offset


def _buffers(item: Item) -> list[Buffer]:
    locations = (
        item.arguments
        if isinstance(item, Launch)
        else [*item.inputs, *item.captured.values()]
        if isinstance(item, PythonStep)
        else item.uses
    )
    return [location for location in locations if isinstance(location, Buffer)]


def _spans(items: Sequence[Item], kept: Sequence[Any]) -> dict[int, list[Any]]:
    """First and last use of every allocation, and the allocation."""
    spans: dict[int, list[Any]] = {}
    uses = [(at, buffer) for at, item in enumerate(items) for buffer in _buffers(item)]
    uses += [(len(items), location) for location in kept if isinstance(location, Buffer)]
    for at, buffer in uses:
        span = spans.setdefault(id(buffer.allocation), [at, at, buffer.allocation])
        span[1] = at
    return spans


def _pays(
    items: Sequence[Item], kept: Sequence[Any], spans: dict[int, list[Any]], found: dict[int, tuple[Allocation, int]]
) -> bool:
    def allocations(moved: dict[int, tuple[Allocation, int]]) -> list[Allocation]:
        joint: dict[int, Allocation] = {}
        for key, (first, last, allocation) in spans.items():
            outer = moved[key][0] if key in moved else allocation
            if outer.constant is None and outer.slot is None:
                one = joint.setdefault(id(outer), Allocation(outer.nbytes, first=first, last=last))
                one.first, one.last = min(one.first, first), max(one.last, last)
        return list(joint.values())

    return live_bytes(allocations(found), len(items) + 1) <= MAX_GROWTH * live_bytes(allocations({}), len(items) + 1)


def moved(location: Any, inside: dict[int, tuple[Allocation, int]]) -> Any:
    """A buffer moved with its allocation; other values unchanged."""
    if not isinstance(location, Buffer) or id(location.allocation) not in inside:
        return location
    allocation, offset = inside[id(location.allocation)]
    return replace(location, allocation=allocation, offset=location.offset + offset)


def rewritten(item: Item, inside: dict[int, tuple[Allocation, int]]) -> Item | None:
    """An item with its buffers moved; None for a copy that became unnecessary."""
    if isinstance(item, PythonStep):
        item.inputs[:] = [moved(location, inside) for location in item.inputs]
        item.captured.update({value: moved(location, inside) for value, location in item.captured.items()})
        return item
    if not isinstance(item, Launch) or not any(id(buffer.allocation) in inside for buffer in _buffers(item)):
        return item
    if item.copied is not None:
        source, target = (moved(location, inside) for location in item.copied)
        if source.allocation is target.allocation and source.offset == target.offset:
            return None
    return item.changed(
        arguments=tuple(moved(argument, inside) for argument in item.arguments),
        in_place=[(moved(source, inside), moved(target, inside)) for source, target in item.in_place],
    )

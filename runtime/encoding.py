"""Encoding: what a planner has put together, as memory, instructions and steps."""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from .blocks import numbers
from .graph import Node, Value
from .launch import CALL, JUMP, UNLESS, Buffer, Launch, Room, parts_for
from .memory import aligned, live_bytes, place
from .nesting import moved, nested, rewritten
from .plan import Branch, Loop, Mark, Plan, PythonStep, Stretch, Tap, size
from .spending import check_memory, check_work

if TYPE_CHECKING:
    from .planner import Planner

Item = Launch | PythonStep | Mark
Home = Buffer | Value


def launched(planner: Planner) -> list[Any]:
    """The kernels of a plan, whose outputs are known by now."""
    return [item.kernel for item in _nested(planner, _output_slots(planner))[0] if isinstance(item, Launch)]


def encoded(planner: Planner, others: Callable[[bool], Iterable[Any]]) -> Plan:
    """The plan, whose outputs are known by now; what it needs is compiled, and `others`, as `preparing.prepare` has them."""
    plan = planner.plan
    items, nodes = _nested(planner, _output_slots(planner))
    loops = _loops(items)
    last = len(items)
    kept: list[Home] = [*plan.outputs, *plan.live]
    scratch = [room for room, _ in planner.scratch]
    arena = _lifetimes(items, kept, loops, scratch)
    if any(room is planner.refusal.room for room in arena):
        plan.refusal = planner.refusal
        plan.refusal.room.first, plan.refusal.room.last = 0, last
    plan.arena, plan.least = place(arena), live_bytes(arena, last)
    ends = _ends(items, kept, loops, last)
    plan.need = plan.arena + sum(aligned(_nbytes(plan, slot)) for slot in plan.made) + _held_by_python(planner, items, ends)
    plan.largest = _largest(planner, items, nodes)
    plan.weights = sum(array.nbytes for array in planner.program.weights.values())
    plan.work, plan.hardest = planner.work, planner.hardest[1]
    check(plan, planner.threads)
    frees: list[list[int | Value]] = [[] for _ in range(last + 1)]
    for thing, position in ends.items():
        frees[position].append(thing)
    kernels = [item.kernel for item in items if isinstance(item, Launch)]
    if kernels:
        from .native import help_team, walk
        from .preparing import prepare

        prepare([*kernels, walk, help_team], others)
    _Encoder(plan, items, nodes, frees).run()
    return plan


def check(plan: Plan, threads: int) -> None:
    """LimitError when a run of the plan takes more memory or time than there is."""
    check_memory(plan.need, plan.weights, plan.largest)
    check_work(plan.work, threads, plan.hardest)


def _nbytes(plan: Plan, slot: int) -> int:
    dtype, shape = plan.slots[slot]
    return size(shape) * dtype.itemsize


def _output_slots(planner: Planner) -> list[Item]:
    """Launches of all chains; outputs that a launch fills get arrays of their own."""
    from .fusion import Chain

    plan = planner.plan
    produced = {id(item.output.room) for item in planner.chains if isinstance(item, Chain)}
    produced |= {
        id(argument.room) for item in planner.chains if isinstance(item, Launch) for argument in item.arguments
        if isinstance(argument, Buffer) and argument.room.constant is None and argument.room.slot is None
    }
    for home in plan.outputs:
        if not isinstance(home, Buffer) or home.room.constant is not None or home.room.slot is not None or id(home.room) not in produced:
            continue
        if home.offset == 0 and home.nbytes == home.room.nbytes:
            home.room.slot = planner.slot(home.dtype, home.shape)
            plan.made.append(home.room.slot)
    parts = functools.partial(parts_for, planner.threads)
    return [item.launch(parts) if isinstance(item, Chain) else item for item in planner.chains]


def _nested(planner: Planner, items: list[Item]) -> tuple[list[Item], list[Node | None]]:
    """Launches without the copies that can be spared, and the node of each."""
    plan = planner.plan
    inside = nested(items, [*plan.outputs, *plan.live], lambda room: planner.homes.tenant(room) is not None)
    if not inside:
        return items, planner.nodes
    plan.outputs, plan.live = ([moved(home, inside) for home in homes] for homes in (plan.outputs, plan.live))
    pairs = [(rewritten(item, inside), node) for item, node in zip(items, planner.nodes, strict=True)]
    return [item for item, _ in pairs if item is not None], [node for item, node in pairs if item is not None]


def _homes(item: Item) -> Iterable[Home]:
    """What an item reads or writes, the results of Python left out."""
    if isinstance(item, PythonStep):
        return (*(home for home in item.inputs if home is not None), *item.captured.values())
    if isinstance(item, Mark):
        return item.uses
    return (argument for argument in item.arguments if isinstance(argument, Buffer))


def _loops(items: list[Item]) -> list[tuple[int, int]]:
    """First and last positions of the loops, inner ones first."""
    found, open_ = [], []
    for position, item in enumerate(items):
        if isinstance(item, Mark) and item.kind == "loop":
            open_.append(position)
        elif isinstance(item, Mark) and item.kind == "again":
            found.append((open_.pop(), position))
    return found


def _lifetimes(items: list[Item], kept: list[Home], loops: list[tuple[int, int]], scratch: list[Room]) -> list[Room]:
    """The rooms of the arena, with their first and last positions: what a loop reads from before it lives until its end."""
    arena: dict[int, Room] = {}

    def use(home: Home, at: int) -> None:
        if isinstance(home, Buffer) and home.room.constant is None and home.room.slot is None:
            room = arena.setdefault(id(home.room), home.room)
            room.first = at if room.first < 0 else min(room.first, at)
            room.last = max(room.last, at)

    for position, item in enumerate(items):
        for home in _homes(item):
            use(home, position)
    for room in scratch:
        room.last = max(room.last, room.first)
    for home in kept:
        use(home, len(items))
    rooms = list(arena.values())
    for begin, end in loops:
        for room in rooms:
            if room.first < begin <= room.last <= end:
                room.last = end
    for room in rooms:
        room.first = max(room.first, 0)
    return rooms


def _ends(items: list[Item], kept: list[Home], loops: list[tuple[int, int]], last: int) -> dict[int | Value, int]:
    """Where each result of Python is used last; those that outlive the steps are left out."""
    made: dict[int | Value, int] = {}
    ends: dict[int | Value, int] = {}
    for position, item in enumerate(items):
        for home in _homes(item):
            thing = home if isinstance(home, Value) else home.room.slot
            if thing in made:
                ends[thing] = position
        if isinstance(item, PythonStep):
            for value, slot in zip(item.node.outputs, item.slots, strict=False):
                for thing in (value, slot):
                    if thing is not None:
                        made[thing] = ends[thing] = position
    for begin, end in loops:
        for thing, position in ends.items():
            if made[thing] < begin <= position <= end:
                ends[thing] = end
    for home in kept:
        ends.pop(home if isinstance(home, Value) else home.room.slot if home.room.slot is not None else -1, None)
    return ends


def _held_by_python(planner: Planner, items: list[Item], ends: dict[int | Value, int]) -> int:
    """Bytes of the results of Python that live at once, as far as inference knows them."""
    rooms = []
    for position, item in enumerate(items):
        if isinstance(item, PythonStep):
            for value, slot in zip(item.node.outputs, item.slots, strict=False):
                end = ends.get(value, len(items)) if slot is None else max(ends.get(value, 0), ends.get(slot, len(items)))
                rooms.append(Room(planner.nbytes(value), first=position, last=end))
    return live_bytes(rooms, len(items) + 1)


def _largest(planner: Planner, items: list[Item], nodes: list[Node | None]) -> str:
    """The node whose results and scratch memory are the most bytes, named with them."""
    made: dict[int, int] = {}
    seen: set[int] = set()
    for position, item in enumerate(items):
        if isinstance(item, PythonStep):
            made[position] = sum(planner.nbytes(value) for value in item.node.outputs)
        else:
            rooms = [home.room for home in _homes(item) if isinstance(home, Buffer) and home.room.constant is None and id(home.room) not in seen]
            seen.update(id(room) for room in rooms)
            made[position] = sum(room.nbytes for room in {id(room): room for room in rooms}.values())
    most = max(made, key=lambda at: made[at], default=-1)
    node = nodes[most] if most >= 0 else None
    return "" if node is None else f"{described(node)} with {made[most]:,} bytes"


def described(node: Node) -> str:
    """A node for messages: its operator and its name, or that of its output."""
    name = node.name or next((value.name for value in node.outputs if value.name), "")
    return f"{node.op.name} {name!r}"


class _Encoder:
    """Writes launches as instructions, and what stands between marks as steps inside steps."""

    def __init__(self, plan: Plan, items: list[Item], nodes: list[Node | None], frees: list[list[int | Value]]) -> None:
        self.plan = plan
        self.items = items
        self.nodes = nodes
        self.frees = frees
        self.words: list[int] = []
        self.arena: list[tuple[int, int]] = []
        self.ends = self._partners()

    def _partners(self) -> dict[int, tuple[int, int]]:
        """For each mark that opens something, the positions of its middle (its end where there is none) and its end."""
        found: dict[int, tuple[int, int]] = {}
        open_: list[list[int]] = []
        for position, item in enumerate(self.items):
            kind = item.kind if isinstance(item, Mark) else ""
            if kind in ("if", "loop"):
                open_.append([position])
            elif kind == "else":
                open_[-1].append(position)
            elif kind in ("end", "again"):
                first, *middle = open_.pop()
                found[first] = ((middle or [position])[0], position)
        return found

    def run(self) -> None:
        plan = self.plan
        self._steps(plan.steps, 0, len(self.items))
        plan.words = np.array(self.words, np.int64)
        places, offsets = zip(*self.arena, strict=True) if self.arena else ((), ())
        plan.arena_words = (np.array(places, np.int64), np.array(offsets, np.int64))

    def _steps(self, steps: list[Any], at: int, stop: int) -> None:
        """The steps from one position to another."""
        while at < stop:
            item = self.items[at]
            if isinstance(item, Launch) or self._native_branch(at):
                at = self._native(self._stretch(steps), at)
                continue
            if isinstance(item, PythonStep):
                steps.append(item)
                item.frees += self.frees[at]
                at += 1
                continue
            step, (middle, end) = item.step, self.ends.get(at, (at, at))
            assert step is not None
            steps.append(step)
            if isinstance(step, Tap):
                step.frees += self.frees[at]
            elif isinstance(step, Branch):
                self._steps(step.taken, at + 1, middle)
                self._steps(step.other, middle + 1, end)
                step.frees += [thing for mark in (at, middle, end) for thing in self.frees[mark]]
            elif isinstance(step, Loop):
                self._steps(step.body, at + 1, end)
                step.frees += [*self.frees[at], *self.frees[end]]
                self._repeated(step)
            at = end + 1

    def _native_branch(self, at: int) -> bool:
        """Whether a branch begins at a position that needs no Python."""
        item = self.items[at]
        if not isinstance(item, Mark) or item.kind != "if":
            return False
        inside = self.items[at : self.ends[at][1] + 1]
        return all(isinstance(item, Launch) or (isinstance(item, Mark) and item.kind in ("if", "else", "end")) for item in inside)

    def _stretch(self, steps: list[Any]) -> Stretch:
        """The last step, when launches can go on there, or a new one."""
        count = len(self.plan.code)
        if not steps or not isinstance(steps[-1], Stretch) or steps[-1].stop != count:
            steps.append(Stretch(count, count, False))
        found = steps[-1]
        assert isinstance(found, Stretch)
        return found

    def _native(self, stretch: Stretch, at: int) -> int:
        """Encode a launch or a branch of launches; the position behind it."""
        item = self.items[at]
        if isinstance(item, Launch):
            self._call(stretch, item, self.nodes[at])
            stretch.frees += self.frees[at]
            return at + 1
        middle, end = self.ends[at]
        assert isinstance(item, Mark)
        assert isinstance(item.step, Branch)
        entry = self._jump(stretch, UNLESS, self._word(item.step.condition))
        at += 1
        while at < middle:
            at = self._native(stretch, at)
        leave = self._jump(stretch, JUMP, 0)
        self._land(stretch, entry)
        at = middle + 1
        while at < end:
            at = self._native(stretch, at)
        self._land(stretch, leave)
        for mark in (middle, end):
            stretch.frees += self.frees[mark]
        return end + 1

    def _repeated(self, loop: Loop) -> None:
        """Let a body that is one stretch repeat itself."""
        if len(loop.body) == 1 and isinstance(loop.body[0], Stretch):
            stretch = loop.body[0]
            leave = self._jump(stretch, UNLESS, self._word(loop.again))
            back = self._jump(stretch, JUMP, 0)
            self.plan.code[back] = (JUMP, 0, 0, 0)
            self._land(stretch, leave)
            loop.whole = True

    def _jump(self, stretch: Stretch, kind: int, word: int) -> int:
        code = self.plan.code
        code.append((kind, word, 0, 0))
        self.plan.launches.append((None, None))
        stretch.stop = len(code)
        return len(code) - 1

    def _land(self, stretch: Stretch, jump: int) -> None:
        """Make a jump lead to the instruction that comes next."""
        kind, word, _, _ = self.plan.code[jump]
        target = len(self.plan.code) - stretch.start
        self.plan.code[jump] = (kind, word, target, 0) if kind == UNLESS else (kind, target, 0, 0)

    def _call(self, stretch: Stretch, launch: Launch, node: Node | None) -> None:
        plan = self.plan
        plan.code.append((CALL, launch.kernel.address, len(self.words), launch.parts))
        plan.launches.append((launch, node))
        stretch.stop = len(plan.code)
        stretch.parallel = stretch.parallel or launch.parts > 1
        for argument in launch.arguments:
            self._word(argument)

    def _word(self, argument: Buffer | float) -> int:
        """The place of a new word that holds an argument."""
        at = len(self.words)
        if not isinstance(argument, Buffer):
            self.words.append(struct.unpack("q", struct.pack("d", argument))[0] if isinstance(argument, float) else int(argument))
        elif argument.room.constant is not None:
            self.plan.held.append(numbers(argument.room.constant))
            self.words.append(self.plan.held[-1].ctypes.data + argument.offset)
        elif argument.room.slot is not None:
            self.plan.slot_words.setdefault(argument.room.slot, []).append((at, argument.offset))
            self.words.append(0)
        else:
            self.arena.append((at, argument.room.at + argument.offset))
            self.words.append(0)
        return at

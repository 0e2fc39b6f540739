"""Bytecode encoder: turns a plan into instructions, argument words and steps."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from ..ir.graph import Node
from ..tensor.weight_array import as_array
from .kernel_api import CALL, JUMP, UNLESS, Buffer, Launch
from .layout import Layout
from .plan import Branch, Loop, Mark, NativeSegment, Plan, PythonStep, Tap


def encoded(layout: Layout) -> Plan:
    """The plan with bytecode, ready to run; compiles its kernels."""
    _Encoder(layout).run()
    return layout.plan


class _Encoder:
    """Encodes launches as instructions, and branches and loops as nested steps."""

    def __init__(self, layout: Layout) -> None:
        self.plan = layout.plan
        self.items = layout.items
        self.nodes = layout.nodes
        self.frees = layout.frees
        self.words: list[int] = []
        self.arena: list[tuple[int, int]] = []
        self.ends = self._partners()

    def _partners(self) -> dict[int, tuple[int, int]]:
        """For each opening mark, the positions of its middle mark (or its end) and of its end."""
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
        """The steps between two positions."""
        while at < stop:
            item = self.items[at]
            if isinstance(item, Launch) or self._native_branch(at):
                at = self._native(self._segment(steps), at)
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
                self._steps(step.then, at + 1, middle)
                self._steps(step.other, middle + 1, end)
                step.frees += [thing for mark in (at, middle, end) for thing in self.frees[mark]]
            elif isinstance(step, Loop):
                self._steps(step.body, at + 1, end)
                step.frees += [*self.frees[at], *self.frees[end]]
                self._repeated(step)
            at = end + 1

    def _native_branch(self, at: int) -> bool:
        """Whether a branch that is native code only begins at a position."""
        item = self.items[at]
        if not isinstance(item, Mark) or item.kind != "if":
            return False
        inside = self.items[at : self.ends[at][1] + 1]
        return all(
            isinstance(item, Launch) or (isinstance(item, Mark) and item.kind in ("if", "else", "end"))
            for item in inside
        )

    def _segment(self, steps: list[Any]) -> NativeSegment:
        """The last step if launches can be appended to it, else a new segment."""
        count = len(self.plan.code)
        if not steps or not isinstance(steps[-1], NativeSegment) or steps[-1].stop != count:
            steps.append(NativeSegment(count, count, False))
        found = steps[-1]
        assert isinstance(found, NativeSegment)
        return found

    def _native(self, segment: NativeSegment, at: int) -> int:
        """Encode a launch or a native branch; returns the next position."""
        item = self.items[at]
        if isinstance(item, Launch):
            self._call(segment, item, self.nodes[at])
            segment.frees += self.frees[at]
            return at + 1
        middle, end = self.ends[at]
        assert isinstance(item, Mark)
        assert isinstance(item.step, Branch)
        entry = self._jump(segment, UNLESS, self._word(item.step.condition))
        at += 1
        while at < middle:
            at = self._native(segment, at)
        leave = self._jump(segment, JUMP, 0)
        self._land(segment, entry)
        at = middle + 1
        while at < end:
            at = self._native(segment, at)
        self._land(segment, leave)
        for mark in (middle, end):
            segment.frees += self.frees[mark]
        return end + 1

    def _repeated(self, loop: Loop) -> None:
        """Make a loop body of one segment repeat in native code."""
        if len(loop.body) == 1 and isinstance(loop.body[0], NativeSegment):
            segment = loop.body[0]
            leave = self._jump(segment, UNLESS, self._word(loop.continues))
            back = self._jump(segment, JUMP, 0)
            self.plan.code[back] = (JUMP, 0, 0, 0)
            self._land(segment, leave)
            loop.is_native = True

    def _jump(self, segment: NativeSegment, kind: int, word: int) -> int:
        code = self.plan.code
        code.append((kind, word, 0, 0))
        self.plan.launches.append((None, None))
        segment.stop = len(code)
        return len(code) - 1

    def _land(self, segment: NativeSegment, jump: int) -> None:
        """Set the target of a jump to the next instruction."""
        kind, word, _, _ = self.plan.code[jump]
        target = len(self.plan.code) - segment.start
        self.plan.code[jump] = (kind, word, target, 0) if kind == UNLESS else (kind, target, 0, 0)

    def _call(self, segment: NativeSegment, launch: Launch, node: Node | None) -> None:
        plan = self.plan
        plan.code.append((CALL, launch.kernel.address, len(self.words), launch.parts))
        plan.launches.append((launch, node))
        segment.stop = len(plan.code)
        segment.parallel = segment.parallel or launch.parts > 1
        for argument in launch.arguments:
            self._word(argument)

    def _word(self, argument: Buffer | float) -> int:
        """The index of a new argument word."""
        at = len(self.words)
        if not isinstance(argument, Buffer):
            self.words.append(
                struct.unpack("q", struct.pack("d", argument))[0] if isinstance(argument, float) else int(argument)
            )
        elif argument.allocation.constant is not None:
            self.plan.pinned.append(as_array(argument.allocation.constant))
            self.words.append(self.plan.pinned[-1].ctypes.data + argument.offset)
        elif argument.allocation.slot is not None:
            self.plan.slot_words.setdefault(argument.allocation.slot, []).append((at, argument.offset))
            self.words.append(0)
        else:
            self.arena.append((at, argument.allocation.at + argument.offset))
            self.words.append(0)
        return at

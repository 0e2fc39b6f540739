"""Bytecode interpreter: walks a plan's instructions and calls kernels by address on every thread of a team.

The leader thread walks the instructions and calls kernels of one part itself. Parts of other kernels are claimed by
the leader and the helpers through an atomic ticket, so a descheduled thread delays one part at most. The leader claims
parts from the front and helpers from the back, so that consecutive kernels find data in the same core's cache. Results
do not depend on which thread computes a part.
"""

# mypy: disable-error-code="misc, untyped-decorator"
from __future__ import annotations

import time
from typing import Any

from llvmlite import ir

from ..jit.address import i64, u8
from ..jit.atomic import atomic_add, atomic_load, atomic_store, call_system, spin, swapped, system_address
from ..jit.kernel_arguments import Address
from ..jit.numba_lazy import intrinsic, types
from ..jit.range_kernel import inner, range_kernel
from ..plan.kernel_api import CALL, UNLESS

WORD = ir.IntType(64)
INSTRUCTION = 4
"""Words of an instruction: opcode and three operands."""
TICKET, DONE, TASK = 0, 8, 16
"""Offsets in a team's memory, each in its own cache line: ticket (task, end and begin of unclaimed parts), number of
finished parts, task (kernel, arguments, parts)."""
TEAM_WORDS = 24
CLOSED = -1
_PARTS = 20
PARTS_LIMIT = (1 << _PARTS) - 1

LOG_HEAD, LOG_ENTRY = 4, 3
"""Words of a timing log: two of the clock, capacity, entries so far; an entry is instruction address, begin, end."""

_MONOTONIC = getattr(time, "CLOCK_MONOTONIC", 0)


@intrinsic
def call_range_kernel(typing: Any, function: Any, arguments: Any, part: Any, parts: Any) -> Any:
    """Call a range kernel by address."""

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [WORD.as_pointer(), WORD, WORD])
        builder.call(
            builder.inttoptr(args[0], kind.as_pointer()),
            [builder.inttoptr(args[1], WORD.as_pointer()), args[2], args[3]],
        )
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64, types.int64), lower


CLOCK = system_address("clock_gettime")
"""The address that `walk` is given."""


@inner
def _take_part(team: int, leads: int) -> int:
    """Compute the next part of the current task: 1 if a part was left, 0 if not, -1 if the team is closed."""
    ticket = atomic_load(team + 8 * TICKET)
    if ticket < 0:
        return -1
    first, end = ticket & PARTS_LIMIT, (ticket >> _PARTS) & PARTS_LIMIT
    if first >= end:
        return 0
    if swapped(team + 8 * TICKET, ticket, ticket + 1 if leads != 0 else ticket - (1 << _PARTS)):
        task = i64(team + 8 * TASK)
        call_range_kernel(task[0], task[1], first if leads != 0 else end - 1, task[2])
        atomic_add(team + 8 * DONE, 1)
    return 1


@inner
def _now(log: int, clock: int) -> int:
    """Nanoseconds of the monotonic clock, which is read into the first words of a log."""
    if clock != 0:
        call_system(clock, _MONOTONIC, log)
    return i64(log)[0] * 1_000_000_000 + i64(log)[1]


@inner
def _note(log: int, clock: int, instruction: int, began: int) -> None:
    head = i64(log)
    if head[3] < head[2]:
        entry = i64(log + 8 * (LOG_HEAD + LOG_ENTRY * head[3]))
        entry[0], entry[1], entry[2] = instruction, began, _now(log, clock)
    head[3] += 1


@range_kernel
def walk(
    code: Address,
    count: int,
    team: Address,
    log: Address,
    give_way: Address,
    clock: Address,
    ended: Address,
    part: int,
    parts: int,
) -> None:
    """Run `count` instructions with a team (0 to work alone); the time of every call is noted in a log (0 for none),
    and 1 in the word `ended` after the last one."""
    at, task_number, began = 0, 0, 0
    while at < count:
        instruction = i64(code + 8 * INSTRUCTION * at)
        kind, first, second, pieces = instruction[0], instruction[1], instruction[2], instruction[3]
        at += 1
        if kind == CALL:
            if log != 0:
                began = _now(log, clock)
            if pieces == 1 or team == 0:
                for piece in range(pieces):
                    call_range_kernel(first, second, piece, pieces)
                if log != 0:
                    _note(log, clock, code + 8 * INSTRUCTION * (at - 1), began)
                continue
            task = i64(team + 8 * TASK)
            task[0], task[1], task[2] = first, second, pieces
            atomic_store(team + 8 * DONE, 0)
            task_number = (task_number + 1) & 0x3FFFFF
            atomic_store(team + 8 * TICKET, (task_number << (2 * _PARTS)) | (pieces << _PARTS))
            while _take_part(team, 1) == 1:
                pass
            turn = 0
            while atomic_load(team + 8 * DONE) < pieces:
                turn = spin(turn, give_way)
            if log != 0:
                _note(log, clock, code + 8 * INSTRUCTION * (at - 1), began)
        elif kind == UNLESS:
            if u8(i64(first)[0])[0] == 0:
                at = second
        else:
            at = first
    if team != 0:
        atomic_store(team + 8 * TICKET, CLOSED)
    i64(ended)[0] = 1


@range_kernel
def help_team(team: Address, give_way: Address, part: int, parts: int) -> None:
    """Take parts of a team's tasks until it is closed."""
    turn = 0
    while True:
        taken = _take_part(team, 0)
        if taken < 0:
            return
        turn = 0 if taken else spin(turn, give_way)

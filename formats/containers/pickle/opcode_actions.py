"""Actions of the pickle opcodes, by name; opcodes without one push their argument."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable
from typing import Any

from ....runtime.base.errors import LimitError
from .cursor import native_text
from .inert_objects import Record, Value
from .opcodes import HIGHEST_PROTOCOL
from .state import MachineState

DEPTH = 10_000
"""Limit of open marks; Python's own pickler stays far below."""


def stop(machine: MachineState, _: None) -> None:
    """The end; `Machine.run` sees to it."""


def _mark(machine: MachineState, _: None) -> None:
    if len(machine.marks) >= DEPTH:
        carrier = machine.cursor.carrier
        why = f"nests deeper than {DEPTH:,}"
        raise LimitError("E-PKL-DEPTH", carrier.file, why, at=carrier.base + machine.at, hint="No real checkpoint does")
    machine.marks.append(len(machine.stack))


def _pop(machine: MachineState, _: None) -> None:
    if machine.marks and machine.marks[-1] == len(machine.stack):
        machine.marks.pop()
    else:
        machine.pop()


def _pop_mark(machine: MachineState, _: None) -> None:
    machine.pop_marked()


def _text_int(machine: MachineState, line: bytes) -> None:
    if line in (b"00", b"01"):
        machine.push(line == b"01")
    elif re.fullmatch(rb"\s*[+-]?\d{1,2000}L?\s*", line):
        machine.push(int(line.strip().rstrip(b"L")))
    else:
        raise machine.malformed("E-PKL-NUMBER", f"{line[:40]!r} is not an integer")


def _text_float(machine: MachineState, line: bytes) -> None:
    try:
        machine.push(float(line))
    except ValueError as error:
        raise machine.malformed("E-PKL-NUMBER", f"{line[:40]!r} is not a number") from error


def _text_string(machine: MachineState, line: bytes) -> None:
    quoted = line.strip()
    if len(quoted) < 2 or quoted[:1] not in b"'\"" or quoted[-1:] != quoted[:1]:
        raise machine.malformed("E-PKL-TEXT", "a byte string is not quoted")
    try:
        machine.push(native_text(codecs.escape_decode(quoted[1:-1])[0]))
    except ValueError as error:
        raise machine.malformed("E-PKL-TEXT", "a byte string has a broken escape") from error


def _text_unicode(machine: MachineState, line: bytes) -> None:
    try:
        machine.push(line.decode("raw-unicode-escape"))
    except UnicodeDecodeError as error:
        raise machine.malformed("E-PKL-TEXT", "a text has a broken escape") from error


def _index(machine: MachineState, line: bytes) -> int:
    if not re.fullmatch(rb"\d{1,18}", line):
        raise machine.malformed("E-PKL-MEMO", f"{line[:40]!r} is not a memo index")
    return int(line)


def _dictionary(machine: MachineState, values: list[Value]) -> list[tuple[Value, Value]]:
    if len(values) % 2:
        raise machine.malformed("E-PKL-STACK", "a dictionary gets a key without a value")
    return [(machine.key(key), value) for key, value in zip(values[::2], values[1::2], strict=True)]


def _set_items(machine: MachineState, values: list[Value]) -> None:
    target = machine.top()
    if not isinstance(target, dict | Record):
        raise machine.malformed("E-PKL-TARGET", f"sets keys of a {type(target).__name__}")
    pairs = _dictionary(machine, values)
    if isinstance(target, Record):
        target.pairs.extend(pairs)
        return
    for key, value in pairs:
        target[key] = value


def _append(machine: MachineState, values: list[Value]) -> None:
    target = machine.top()
    if not isinstance(target, list | Record):
        raise machine.malformed("E-PKL-TARGET", f"appends to a {type(target).__name__}")
    (target if isinstance(target, list) else target.items).extend(values)


def _add_items(machine: MachineState, _: None) -> None:
    values = [machine.key(value) for value in machine.pop_marked()]
    target = machine.top()
    if not isinstance(target, set | Record):
        raise machine.malformed("E-PKL-TARGET", f"adds to a {type(target).__name__}")
    target.update(values) if isinstance(target, set) else target.items.extend(values)


def _build(machine: MachineState, _: None) -> None:
    state, target = machine.take(2)[::-1]
    if isinstance(target, Record):
        target.state = state
        target = machine.built(target)
    elif not isinstance(target, dict):
        raise machine.malformed("E-PKL-TARGET", f"sets the state of a {type(target).__name__}")
    machine.push(target)


def _object(machine: MachineState, _: None) -> None:
    machine.unusual.append(("OBJ", machine.at))
    values = machine.pop_marked()
    if not values:
        raise machine.malformed("E-PKL-STACK", "makes an object of nothing")
    machine.push(machine.call(values[0], tuple(values[1:])))


def _instance(machine: MachineState, names: tuple[str, str]) -> None:
    machine.unusual.append(("INST", machine.at))
    arguments = tuple(machine.pop_marked())
    machine.push(machine.call(machine.name(*names), arguments))


def _extension(machine: MachineState, number: int) -> None:
    raise machine.malformed(
        "E-PKL-EXT", f"asks for entry {number} of Python's extension registry, whose meaning is not in the file"
    )


def _protocol(machine: MachineState, version: int) -> None:
    if version > HIGHEST_PROTOCOL:
        raise machine.malformed(
            "E-PKL-PROTOCOL", "is of an unknown pickle protocol", expected=f"0 to {HIGHEST_PROTOCOL}", found=version
        )


def _frame(machine: MachineState, nbytes: int) -> None:
    machine.cursor.check(nbytes)


def _buffer(machine: MachineState, _: None) -> None:
    raise machine.malformed("E-PKL-BUFFER", "refers to a buffer that is not in the file")


def push(machine: MachineState, value: Value) -> None:
    machine.stack.append(value)


Action = Callable[[MachineState, Any], None]
ACTIONS: dict[str, Action] = {
    "MARK": _mark,
    "STOP": stop,
    "POP": _pop,
    "POP_MARK": _pop_mark,
    "DUP": lambda machine, _: machine.push(machine.top()),
    "FLOAT": _text_float,
    "INT": _text_int,
    "LONG": _text_int,
    "STRING": _text_string,
    "UNICODE": _text_unicode,
    "NONE": lambda machine, _: machine.push(None),
    "NEWTRUE": lambda machine, _: machine.push(True),
    "NEWFALSE": lambda machine, _: machine.push(False),
    "PERSID": lambda machine, line: machine.refer(native_text(line)),
    "BINPERSID": lambda machine, _: machine.refer(machine.pop()),
    "EMPTY_TUPLE": lambda machine, _: machine.push(()),
    "TUPLE1": lambda machine, _: machine.push(machine.take(1)),
    "TUPLE2": lambda machine, _: machine.push(machine.take(2)),
    "TUPLE3": lambda machine, _: machine.push(machine.take(3)),
    "TUPLE": lambda machine, _: machine.push(tuple(machine.pop_marked())),
    "EMPTY_LIST": lambda machine, _: machine.push([]),
    "LIST": lambda machine, _: machine.push(machine.pop_marked()),
    "APPEND": lambda machine, _: _append(machine, [machine.pop()]),
    "APPENDS": lambda machine, _: _append(machine, machine.pop_marked()),
    "EMPTY_DICT": lambda machine, _: machine.push({}),
    "DICT": lambda machine, _: machine.push(dict(_dictionary(machine, machine.pop_marked()))),
    "SETITEM": lambda machine, _: _set_items(machine, list(machine.take(2))),
    "SETITEMS": lambda machine, _: _set_items(machine, machine.pop_marked()),
    "EMPTY_SET": lambda machine, _: machine.push(set()),
    "ADDITEMS": _add_items,
    "FROZENSET": lambda machine, _: machine.push(frozenset(machine.key(value) for value in machine.pop_marked())),
    "GLOBAL": lambda machine, names: machine.push(machine.name(*names)),
    "STACK_GLOBAL": lambda machine, _: machine.push(machine.name(*machine.take(2))),
    "REDUCE": lambda machine, _: machine.push(machine.call(*machine.take(2))),
    "NEWOBJ": lambda machine, _: machine.push(machine.call(*machine.take(2))),
    "NEWOBJ_EX": lambda machine, _: machine.push(machine.call(*machine.take(3))),
    "BUILD": _build,
    "OBJ": _object,
    "INST": _instance,
    "EXT1": _extension,
    "EXT2": _extension,
    "EXT4": _extension,
    "PUT": lambda machine, line: machine.remember(_index(machine, line), "PUT"),
    "BINPUT": lambda machine, index: machine.remember(index, "PUT"),
    "LONG_BINPUT": lambda machine, index: machine.remember(index, "PUT"),
    "MEMOIZE": lambda machine, _: machine.remember(len(machine.memo), "MEMOIZE"),
    "GET": lambda machine, line: machine.recall(_index(machine, line)),
    "BINGET": lambda machine, index: machine.recall(index),
    "LONG_BINGET": lambda machine, index: machine.recall(index),
    "PROTO": _protocol,
    "FRAME": _frame,
    "NEXT_BUFFER": _buffer,
    "READONLY_BUFFER": _buffer,
}

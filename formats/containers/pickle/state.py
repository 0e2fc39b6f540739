"""Pickle machine state: stack, marks, memo, names, and their limits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from ....runtime.base.errors import FormatError, LimitError
from .cursor import Carrier, Cursor
from .inert_objects import Global, Persistent, Record, Value

KEY_NODES = 1000
ODD_KEYS = 5000
"""The most keys whose hash a file can choose (large integers, floats, tuples of integers): equal hashes would take
quadratic time."""
_HASHABLE = (str, bytes, int, float, complex, type(None), tuple, frozenset, Global, Record, Persistent)


class MachineState(ABC):
    """The state that opcodes and builders change.

    Attributes:
        globals: every name, in order; called: the ones that a call, a state or the end of the pickle would have brought
            to life; made: the ones that are called with arguments.
        unusual: opcodes that today's writers do not use, with their positions.
        operations: opcodes run.
        at: offset of the current opcode.
    """

    def __init__(self, carrier: Carrier, start: int = 0) -> None:
        self.cursor = Cursor(carrier, start)
        self.stack: list[Value] = []
        self.marks: list[int] = []
        self.memo: dict[int, Value] = {}
        self.memo_style = ""
        self.globals: list[Global] = []
        self.called: list[Global] = []
        self.made: list[Global] = []
        self.unusual: list[tuple[str, int]] = []
        self.operations = 0
        self.odd_keys = 0
        self.at = start

    @abstractmethod
    def call(self, target: Value, arguments: Value, keywords: Value = None) -> Value:
        """Result of calling `target`: a plain container for allow-listed names, else an inert record."""

    def built(self, record: Record) -> Value:
        """The result of BUILD on a record: for Python's own loader, the object itself."""
        return record

    def malformed(self, code: str, why: str, **sides: Any) -> FormatError:
        """A FormatError at the current opcode."""
        return self.cursor.malformed(code, why, self.at, **sides)

    def push(self, value: Value) -> None:
        """Put a value on the stack."""
        self.stack.append(value)

    def pop(self) -> Value:
        """Take the top value."""
        self._reach(1)
        return self.stack.pop()

    def top(self) -> Value:
        """The top value, left there."""
        self._reach(1)
        return self.stack[-1]

    def _reach(self, count: int) -> None:
        if len(self.stack) - (self.marks[-1] if self.marks else 0) < count:
            raise self.malformed("E-PKL-STACK", "takes a value from an empty stack")

    def pop_marked(self) -> list[Value]:
        """Take all values above the last mark, and the mark."""
        if not self.marks:
            raise self.malformed("E-PKL-STACK", "needs a mark, but none was set")
        start = self.marks.pop()
        values = self.stack[start:]
        del self.stack[start:]
        return values

    def take(self, count: int) -> tuple[Value, ...]:
        """Take the top values, in the order they were pushed."""
        self._reach(count)
        values = tuple(self.stack[-count:])
        del self.stack[-count:]
        return values

    def remember(self, index: int, style: str) -> None:
        """Put the top value into the memo."""
        if index < 0 or self.memo_style not in ("", style):
            raise self.malformed(
                "E-PKL-MEMO", "numbers its memo in two ways" if index >= 0 else f"uses the memo index {index}"
            )
        self.memo_style = style
        self.memo[index] = self.top()

    def recall(self, index: int) -> None:
        """Push a value of the memo."""
        if index not in self.memo:
            raise self.malformed("E-PKL-MEMO", f"asks for memo entry {index}, which was never set")
        self.push(self.memo[index])

    def name(self, module: Value, qualname: Value) -> Global:
        """A name, recorded in `globals`."""
        if not isinstance(module, str) or not isinstance(qualname, str):
            kinds = f"{type(module).__name__} and {type(qualname).__name__}"
            raise self.malformed("E-PKL-NAME", "a name is not made of two strings", found=kinds)
        found = Global(module, qualname, self.cursor.carrier.base + self.at)
        self.globals.append(found)
        return found

    def refer(self, id: Value) -> None:
        """Push a reference to something outside the pickle."""
        self.push(Persistent(id, self.cursor.carrier.base + self.at))

    def grow(self, count: int) -> None:
        """Charge `count` objects of one opcode to the budget."""
        self.cursor.carrier.budget.entry(count, "pickle objects", at=self.cursor.carrier.base + self.at)

    def key(self, value: Value) -> Value:
        """`value`, if it is a dictionary key or set member that is cheap to hash and compare."""
        kind = type(value)
        if kind is str or kind is bytes or value is None or (kind is int and abs(value) < 1 << 60):
            return value
        pending, seen, odd = [value], 0, False
        while pending:
            item = pending.pop()
            seen += 1
            if seen > KEY_NODES or not isinstance(item, _HASHABLE):
                fault = "too large" if seen > KEY_NODES else f"a {type(item).__name__}"
                raise self.malformed("E-PKL-KEY", f"a dictionary key or set member is {fault}")
            if isinstance(item, tuple | frozenset):
                pending.extend(item)
            odd = odd or isinstance(item, int | float | complex)
        self.odd_keys += odd
        if self.odd_keys > ODD_KEYS:
            why, at = f"has more than {ODD_KEYS:,} keys that are not text", self.cursor.carrier.base + self.at
            raise LimitError(
                "E-PKL-KEYS", self.cursor.carrier.file, why, at=at, hint="Save the weights under text names"
            )
        return value

"""Pickles as data: a stack machine for protocols 0 to 5 that builds containers and inert records, and imports or calls nothing.

A name (`Global`) is never looked up. Calling one makes a `Record` of the name and its arguments; only the containers of
`pickle_values.BUILDERS` become what they stand for. Who uses the result decides which names it accepts, see `pickle_names`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...runtime.errors import FormatError, LimitError
from .opcodes import OPCODES
from .pickle_actions import ACTIONS, Action, push, stop
from .pickle_bytes import ARGUMENTS, Carrier, Cursor
from .pickle_objects import Global, Persistent, Record, Value
from .pickle_values import BUILDERS

__all__ = ["Global", "Machine", "Persistent", "Record", "Value"]
KEY_NODES = 1000
ODD_KEYS = 5000
"""The most keys whose hash a file can choose (large integers, floats, tuples of integers): equal hashes would take quadratic time."""
BATCH = 4096


class Machine:
    """One run over one pickle. After an error, what was seen until then is still there.

    Attributes:
        globals: every name, in order; called: the ones that a call, a state or the end of the pickle would have brought to life.
        unusual: opcodes that today's writers do not use, with their positions.
        operations: opcodes run.
    """

    def __init__(self, carrier: Carrier, start: int = 0) -> None:
        self.cursor = Cursor(carrier, start)
        self.stack: list[Value] = []
        self.marks: list[int] = []
        self.memo: dict[int, Value] = {}
        self.memo_style = ""
        self.globals: list[Global] = []
        self.called: list[Global] = []
        self.unusual: list[tuple[str, int]] = []
        self.operations = 0
        self.odd_keys = 0
        self.at = start

    def run(self) -> Value:
        """The value that the pickle leaves; `cursor.position` is then behind its STOP.

        Raises:
            FormatError: the pickle is malformed.
            LimitError: it is too large or too deep.
        """
        cursor = self.cursor
        while True:
            self.at = cursor.position
            if self.at >= cursor.end:
                raise self.refuse("E-PKL-TRUNCATED", "the pickle ends without STOP")
            row = _TABLE[cursor.byte()]
            if row is None:
                raise self.refuse("E-PKL-OPCODE", "is not a pickle opcode", found=f"0x{cursor.carrier.storage.read(self.at, self.at + 1).hex()}")
            read, act = row
            act(self, read(cursor) if read is not None else None)
            if act is stop:
                return self._result()
            self.operations += 1
            if not self.operations % BATCH:
                self.cursor.carrier.budget.entry(BATCH // 2, "pickle objects", at=cursor.carrier.base + self.at)

    def _result(self) -> Value:
        if len(self.stack) != 1 or self.marks:
            raise self.refuse("E-PKL-STACK", f"STOP finds {len(self.stack)} values and {len(self.marks)} marks", expected="1 value")
        self.called = list(self.globals)
        return self.stack.pop()

    def refuse(self, code: str, why: str, **sides: Any) -> FormatError:
        """An error at the opcode that is being run."""
        return self.cursor.refuse(code, why, self.at, **sides)

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
            raise self.refuse("E-PKL-STACK", "takes a value from an empty stack")

    def pop_marked(self) -> list[Value]:
        """Take all values above the last mark, and the mark."""
        if not self.marks:
            raise self.refuse("E-PKL-STACK", "needs a mark, but none was set")
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
            raise self.refuse("E-PKL-MEMO", "numbers its memo in two ways" if index >= 0 else f"uses the memo index {index}")
        self.memo_style = style
        self.memo[index] = self.top()

    def recall(self, index: int) -> None:
        """Push a value of the memo."""
        if index not in self.memo:
            raise self.refuse("E-PKL-MEMO", f"asks for memo entry {index}, which was never set")
        self.push(self.memo[index])

    def name(self, module: Value, qualname: Value) -> Global:
        """A name, noted in `globals`."""
        if not isinstance(module, str) or not isinstance(qualname, str):
            kinds = f"{type(module).__name__} and {type(qualname).__name__}"
            raise self.refuse("E-PKL-NAME", "a name is not made of two strings", found=kinds)
        found = Global(module, qualname, self.cursor.carrier.base + self.at)
        self.globals.append(found)
        return found

    def refer(self, id: Value) -> None:
        """Push a reference to something outside the pickle."""
        self.push(Persistent(id, self.cursor.carrier.base + self.at))

    def call(self, target: Value, arguments: Value, keywords: Value = None) -> Value:
        """What calling `target` gives: a plain container for a few names, an inert record for all others."""
        keywords = {} if keywords is None else keywords
        if not isinstance(arguments, tuple) or not isinstance(keywords, dict):
            raise self.refuse("E-PKL-TARGET", "calls with arguments that are not a tuple", found=type(arguments).__name__)
        if isinstance(target, Global):
            self.called.append(target)
            builder = BUILDERS.get(target.name)
            if builder is not None and not keywords:
                try:
                    return builder(self, arguments)
                except (TypeError, ValueError, LookupError) as error:
                    raise self.refuse("E-PKL-ARGUMENTS", f"calls {target.name} with arguments that it does not take") from error
        elif not isinstance(target, Record | Persistent):
            raise self.refuse("E-PKL-TARGET", f"calls a {type(target).__name__}")
        return Record(target, arguments, keywords, self.cursor.carrier.base + self.at)

    def built(self, record: Record) -> Value:
        """What a record becomes when its state has been set: for Python's own loader the object that it is."""
        return record

    def grow(self, count: int) -> None:
        """Take `count` objects that one opcode makes from the budget."""
        self.cursor.carrier.budget.entry(count, "pickle objects", at=self.cursor.carrier.base + self.at)

    def key(self, value: Value) -> Value:
        """`value`, when it can be a dictionary key or set member that is cheap to hash and compare."""
        kind = type(value)
        if kind is str or kind is bytes or value is None or (kind is int and abs(value) < 1 << 60):
            return value
        waiting, seen, odd = [value], 0, False
        while waiting:
            item = waiting.pop()
            seen += 1
            if seen > KEY_NODES or not isinstance(item, _HASHABLE):
                fault = "too large" if seen > KEY_NODES else f"a {type(item).__name__}"
                raise self.refuse("E-PKL-KEY", f"a dictionary key or set member is {fault}")
            if isinstance(item, tuple | frozenset):
                waiting.extend(item)
            odd = odd or isinstance(item, int | float | complex)
        self.odd_keys += odd
        if self.odd_keys > ODD_KEYS:
            why, at = f"has more than {ODD_KEYS:,} keys that are not text", self.cursor.carrier.base + self.at
            raise LimitError("E-PKL-KEYS", self.cursor.carrier.file, why, at=at, hint="Save the weights under text names")
        return value


_HASHABLE = (str, bytes, int, float, complex, type(None), tuple, frozenset, Global, Record, Persistent)


_TABLE: list[tuple[Callable[[Cursor], Any] | None, Action] | None] = [
    (ARGUMENTS.get(OPCODES[code].argument), ACTIONS.get(OPCODES[code].name, push)) if code in OPCODES else None for code in range(256)
]

"""Pickles as data: a stack machine for protocols 0 to 5 that builds containers and inert records, and imports or calls
nothing.

A name (`Global`) is never looked up. Calling one makes a `Record` of the name and its arguments; only the containers of
`pickle_values.BUILDERS` become what they stand for. Who uses the result decides which names it accepts, see
`pickle_names`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....runtime.base.units import counted
from .builders import BUILDERS
from .cursor import ARGUMENTS, Cursor
from .inert_objects import Global, Persistent, Record, Value
from .opcode_actions import ACTIONS, Action, push, stop
from .opcodes import OPCODES
from .state import MachineState

__all__ = ["Global", "Machine", "Persistent", "Record", "Value"]
BATCH = 4096


class Machine(MachineState):
    """One run over one pickle. After an error, what was seen until then is still there."""

    def run(self) -> Value:
        """The value that the pickle leaves; `cursor.position` is then after its STOP.

        Raises:
            FormatError: the pickle is malformed.
            LimitError: it is too large or too deep.
        """
        cursor = self.cursor
        while True:
            self.at = cursor.position
            if self.at >= cursor.end:
                raise self.malformed("E-PKL-TRUNCATED", "the pickle ends without STOP")
            row = _TABLE[cursor.byte()]
            if row is None:
                raise self.malformed(
                    "E-PKL-OPCODE",
                    "is not a pickle opcode",
                    found=f"0x{cursor.carrier.storage.read(self.at, self.at + 1).hex()}",
                )
            read, act = row
            act(self, read(cursor) if read is not None else None)
            if act is stop:
                return self._result()
            self.operations += 1
            if not self.operations % BATCH:
                self.cursor.carrier.budget.entry(BATCH // 2, "pickle objects", at=cursor.carrier.base + self.at)

    def _result(self) -> Value:
        if len(self.stack) != 1 or self.marks:
            raise self.malformed(
                "E-PKL-STACK",
                f"STOP finds {counted(len(self.stack), 'value')} and {counted(len(self.marks), 'mark')}",
                expected="1 value",
            )
        self.called = list(self.globals)
        return self.stack.pop()

    def call(self, target: Value, arguments: Value, keywords: Value = None) -> Value:
        keywords = {} if keywords is None else keywords
        if not isinstance(arguments, tuple) or not isinstance(keywords, dict):
            raise self.malformed(
                "E-PKL-TARGET", "calls with arguments that are not a tuple", found=type(arguments).__name__
            )
        if isinstance(target, Global):
            self.called.append(target)
            if arguments or keywords:
                self.made.append(target)
            builder = BUILDERS.get(target.name)
            if builder is not None and not keywords:
                try:
                    return builder(self, arguments)
                except (TypeError, ValueError, LookupError) as error:
                    raise self.malformed(
                        "E-PKL-ARGUMENTS", f"calls {target.name} with arguments that it does not take"
                    ) from error
        elif not isinstance(target, Record | Persistent):
            raise self.malformed("E-PKL-TARGET", f"calls a {type(target).__name__}")
        return Record(target, arguments, keywords, self.cursor.carrier.base + self.at)


_TABLE: list[tuple[Callable[[Cursor], Any] | None, Action] | None] = [
    (ARGUMENTS.get(OPCODES[code].argument), ACTIONS.get(OPCODES[code].name, push)) if code in OPCODES else None
    for code in range(256)
]

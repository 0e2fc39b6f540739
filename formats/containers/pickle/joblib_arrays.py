"""Pickles as joblib writes them: the bytes of every array follow the object that describes it, between opcodes.

Source: joblib's `numpy_pickle.NumpyArrayWrapper` and `NumpyUnpickler`.
"""

from __future__ import annotations

import math
import re

from .machine import Machine, Record, Value
from .numpy_records import DTYPE, MAX_DIMS

WRAPPER = "joblib.numpy_pickle.NumpyArrayWrapper"
_CODE = re.compile(r"[<>=|]?([biufcmMVSU](?=\d)|O)(\d{0,18})")
_FLEXIBLE = "VSU"
_OBJECTS = 1
"""The bit of a dtype's flags that says that there are objects within."""
_DEPTH = 16


class JoblibMachine(Machine):
    """Pickle machine for joblib files: array bytes are skipped, and the pickles of object arrays are run too."""

    def built(self, record: Record) -> Value:
        if record.name != WRAPPER:
            return record
        state = record.state
        if not isinstance(state, dict):
            raise self.malformed("E-PKL-ARRAY", "a joblib array lacks its description")
        shape, alignment = state.get("shape"), state.get("numpy_array_alignment_bytes")
        if (
            not isinstance(shape, tuple)
            or not all(type(length) is int and 0 <= length < 1 << 48 for length in shape)
            or len(shape) > MAX_DIMS
        ):
            raise self.malformed("E-PKL-ARRAY", "a joblib array has a shape that is not made of non-negative integers")
        size, objects = self._layout(state.get("dtype"))
        if objects:
            return self._nested()
        if alignment is not None:
            self.cursor.data(self.cursor.byte())
        self.cursor.data(math.prod(shape) * size)
        return record

    def _nested(self) -> Value:
        """The pickle of an array of objects."""
        machine = Machine(self.cursor.carrier, self.cursor.position)
        try:
            value = machine.run()
        finally:
            self.globals += machine.globals
            self.unusual += machine.unusual
        self.cursor.data(machine.cursor.position - self.cursor.position)
        return value

    def _layout(self, dtype: Value, depth: int = 0) -> tuple[int, bool]:
        """Bytes of an element, and whether it is or holds Python objects."""
        code = dtype.arguments[0] if isinstance(dtype, Record) and dtype.name == DTYPE and dtype.arguments else None
        state = dtype.state if isinstance(dtype, Record) else None
        if (
            not isinstance(code, str)
            or depth > _DEPTH
            or not (state is None or (isinstance(state, tuple) and len(state) >= 8))
        ):
            raise self.malformed("E-PKL-ARRAY", "a joblib array has an unknown dtype")
        match = _CODE.fullmatch(code)
        if match is None:
            raise self.malformed("E-PKL-ARRAY", f"an array of joblib has the dtype {code[:40]!r}")
        kind, size = match[1], int(match[2] or 8) * (4 if match[1] == "U" else 1)
        parts = [] if state is None else self._parts(state)
        objects = kind == "O" or any(self._layout(part, depth + 1)[1] for part in parts)
        if state is not None:
            size = state[5] if kind in _FLEXIBLE else size
            if (
                type(size) is not int
                or size < 0
                or type(state[7]) is not int
                or bool(state[7] & _OBJECTS) != objects
                or (parts and kind != "V")
            ):
                raise self.malformed("E-PKL-ARRAY", "an array of joblib has a dtype that contradicts itself")
        return size, objects

    def _parts(self, state: tuple[Value, ...]) -> list[Value]:
        """The dtypes within a dtype: that of a subarray, or those of fields."""
        inner, fields = state[2], state[4]
        parts = [inner[0]] if isinstance(inner, tuple) and inner else []
        if fields is not None and not (
            isinstance(fields, dict) and all(isinstance(field, tuple) and field for field in fields.values())
        ):
            raise self.malformed("E-PKL-ARRAY", "an array of joblib has fields without dtypes")
        return parts + [field[0] for field in (fields or {}).values()]

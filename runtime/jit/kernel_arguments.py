"""Named kernel arguments, packed into the native block of 8-byte words that a range kernel reads.

    @range_kernel
    def scaled(
        x: Address, y: Address, rows: int, scale: float, window: Window, axes: Words, part: int, parts: int
    ) -> None: ...

The annotation of a parameter determines the argument of a launch and the value in the kernel:

    Address         a buffer or an integer address           an address
    int, float      a number                                 the number
    a NamedTuple    the tuple, with annotated fields         the tuple
    Words           any number of the above                  words by index; a float is read with `address.number`

The block holds the words of all parameters in order, those of a tuple consecutively. For `Words` it holds the index of
their first word; the words follow after the parameters.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any, TypeAlias

from ..base.process_cache import process_cache

Address: TypeAlias = Any
"""Memory: a buffer in a launch, its address in the kernel."""
Words: TypeAlias = Sequence[Any]
"""A variable number of words."""
_KINDS = {"Address": Address, "Any": Address, "int": int, "float": float, "Words": Words}
_STORED = {float: "double", Words: "ptr"}
"""LLVM types of words that are not i64 in the kernel."""
PART = ("part", "parts")
"""The last parameters of every kernel: index of the part to compute, and number of parts."""


class Parameters:
    """The parameters of one kernel.

    Attributes:
        kernel: its name, for messages.
        kinds: the annotation of each parameter by name: `Address`, int, float, `Words`, or a NamedTuple class.
        plain: whether every argument is a single integer word.
    """

    def __init__(self, kernel: str, kinds: Mapping[str, Any]) -> None:
        self.kernel = kernel
        self.kinds = dict(kinds)
        self.plain = all(kind in (Address, int) for kind in self.kinds.values())
        self._names = frozenset(self.kinds)
        self._leaves = [leaf for kind in self.kinds.values() for leaf in _leaves(kind)]

    def block(self, arguments: Mapping[str, Any]) -> tuple[Any, ...]:
        """The words of a launch: buffers, ints and floats.

        Raises:
            TypeError: a name is missing or unknown, or a value is of the wrong type.
        """
        if arguments.keys() != self._names:
            missing, unknown = (
                sorted(names) for names in (self._names - arguments.keys(), arguments.keys() - self._names)
            )
            raise TypeError(f"{self.kernel}: missing arguments {missing}, unknown arguments {unknown}")
        words: list[Any] = []
        behind: list[Any] = []
        for name, kind in self.kinds.items():
            try:
                _add(arguments[name], kind, words, behind, len(self._leaves))
            except TypeError as cause:
                raise TypeError(f"{self.kernel}: argument {name!r} is {arguments[name]!r}: {cause}") from cause
        return (*words, *behind)

    def entry(self, name: str, callee: str) -> str:
        """LLVM assembly of the entry ``(block, part, parts)``, which loads the words and calls the function `callee` (a
        symbol or an address) that Numba lowered. Kernels do not use its return status."""
        lines = [
            f"define void @{name}(ptr %block, i64 %part, i64 %parts) {{",
            "  %result = alloca ptr",
            "  %error = alloca ptr",
        ]
        passed = ["ptr %result", "ptr %error"]
        for position, kind in enumerate(self._leaves):
            lines.append(f"  %place{position} = getelementptr i64, ptr %block, i64 {position}")
            stored = "double" if kind is float else "i64"
            lines.append(f"  %word{position} = load {stored}, ptr %place{position}")
            value = f"%word{position}"
            if kind is Words:
                value = f"%words{position}"
                lines.append(f"  {value} = getelementptr i64, ptr %block, i64 %word{position}")
            passed.append(f"{_STORED.get(kind, 'i64')} {value}")
        lines.append(f"  %status = call i32 {callee}({', '.join(passed)}, i64 %part, i64 %parts)")
        types = ", ".join(argument.partition(" ")[0] for argument in passed)
        declaration = [f"declare i32 {callee}({types}, i64, i64)"] if callee.startswith("@") else []
        return "\n".join([*declaration, *lines, "  ret void", "}", ""])

    def signature(self, types: Any) -> Any:
        """The words as Numba types."""
        return types.void(*(_typed(kind, types) for kind in self.kinds.values()), types.int64, types.int64)


def parameters_of(function: Callable[..., Any]) -> Parameters:
    """The parameters of a Python function that is compiled as a kernel."""
    assert isinstance(function, FunctionType)
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    if names[-2:] != PART:
        raise TypeError(f"{function.__name__}: the last parameters of a kernel are part and parts")
    return Parameters(
        function.__name__,
        {name: _kind(function.__annotations__.get(name, "int"), function.__globals__) for name in names[:-2]},
    )


def _kind(annotation: str, scope: Mapping[str, Any]) -> Any:
    kind = _KINDS.get(annotation) or scope.get(annotation)
    if kind is None or (annotation not in _KINDS and not hasattr(kind, "_fields")):
        raise TypeError(f"{annotation} is not an annotation of a kernel's parameter")
    return kind


@process_cache
def _fields(record: Any) -> dict[str, Any]:
    """Annotations of the fields of a NamedTuple."""
    scope = vars(sys.modules[record.__module__])
    return {name: _kind(getattr(kind, "__forward_arg__", kind), scope) for name, kind in record.__annotations__.items()}


def _leaves(kind: Any) -> list[Any]:
    """Annotations of the words of a parameter."""
    return [leaf for inner in _fields(kind).values() for leaf in _leaves(inner)] if hasattr(kind, "_fields") else [kind]


def _typed(kind: Any, types: Any) -> Any:
    if hasattr(kind, "_fields"):
        return types.NamedTuple([_typed(inner, types) for inner in _fields(kind).values()], kind)
    return types.float64 if kind is float else types.CPointer(types.int64) if kind is Words else types.int64


def _add(value: Any, kind: Any, words: list[Any], behind: list[Any], count: int) -> None:
    """Append the words of an argument; elements of `Words` go to `behind`, which follows after `count` words."""
    if kind is int:
        words.append(operator.index(value))
    elif kind is float:
        words.append(float(value))
    elif kind is Words:
        words.append(count + len(behind))
        behind.extend(value)
    elif kind is Address:
        if value is None or isinstance(value, float | tuple | list):
            raise TypeError("not a buffer or an address")
        words.append(value)
    elif isinstance(value, kind):
        for item, inner in zip(value, _fields(kind).values(), strict=True):
            _add(item, inner, words, behind, count)
    else:
        raise TypeError(f"not a {kind.__name__}")

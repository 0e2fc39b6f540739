"""Allow-listed pickle constructors: containers, byte strings, paths and times, built without imports from their
arguments alone."""

from __future__ import annotations

import datetime
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any

from .cursor import Span
from .state import MachineState

Arguments = tuple[Any, ...]
Builder = Callable[[MachineState, Arguments], Any]

LATIN = ("latin1", "latin-1", "iso-8859-1")
PATHS = ("Path", "PosixPath", "WindowsPath", "PurePath", "PurePosixPath", "PureWindowsPath")


def _pairs(machine: MachineState, arguments: Arguments) -> dict[Any, Any]:
    """A dictionary from nothing, another one, or a list of pairs."""
    if not arguments:
        return {}
    (elements,) = arguments
    pairs = list(elements.items()) if isinstance(elements, dict) else [(key, value) for key, value in elements]
    machine.grow(len(pairs))
    return {machine.key(key): value for key, value in pairs}


def _default_dict(machine: MachineState, arguments: Arguments) -> dict[Any, Any]:
    return _pairs(machine, arguments[1:])


def _members(machine: MachineState, arguments: Arguments) -> list[Any]:
    """The members of a list or set that is made from another container."""
    elements = arguments[0] if arguments else ()
    if not isinstance(elements, list | tuple | set | frozenset):
        raise TypeError(type(elements).__name__)
    machine.grow(len(elements))
    return list(elements)


def _set(machine: MachineState, arguments: Arguments) -> set[Any]:
    return {machine.key(value) for value in _members(machine, arguments)}


def _byte_string(machine: MachineState, arguments: Arguments) -> bytes | Span:
    """Bytes from nothing, bytes, or text in latin-1, which is how protocol 2 holds them."""
    if not arguments:
        return b""
    elements, *encoding = arguments
    if isinstance(elements, bytes | Span) and not encoding:
        return elements
    if not isinstance(elements, str) or encoding[0] not in LATIN:
        raise TypeError(type(elements).__name__)
    carrier = machine.cursor.carrier
    carrier.budget.charge(len(elements), "a byte string", at=carrier.base + machine.at)
    return elements.encode("latin-1")


def _complex(machine: MachineState, arguments: Arguments) -> complex:
    if not all(isinstance(part, int | float) for part in arguments):
        raise TypeError
    return complex(*arguments)


def _path(machine: MachineState, arguments: Arguments) -> str:
    text = "/".join(arguments)
    machine.grow(len(arguments) + len(text) // 64)
    return text if not text.startswith("//") else text[1:]


def _device(machine: MachineState, arguments: Arguments) -> str:
    kind, *index = arguments
    return ":".join([kind, *(str(int(number)) for number in index)])


def _layout(machine: MachineState, arguments: Arguments) -> str:
    (name,) = arguments
    return "".join((name,))


def _moment(kind: type[datetime.datetime] | type[datetime.date] | type[datetime.time]) -> Builder:
    def build(machine: MachineState, arguments: Arguments) -> str:
        packed, *zone = arguments
        if not isinstance(packed, bytes):
            raise TypeError
        unpack: Callable[[bytes], Any] = kind
        moment: str = unpack(packed).isoformat()
        return moment + "".join(zone)

    return build


def _time_span(machine: MachineState, arguments: Arguments) -> float:
    return datetime.timedelta(*arguments).total_seconds()


def _zone(machine: MachineState, arguments: Arguments) -> str:
    minutes = round(arguments[0] / 60)
    return f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}"


def _reconstructed(machine: MachineState, arguments: Arguments) -> Any:
    """How protocols 0 and 1 make an object: class, base class, and the base class's value."""
    made, _, value = arguments
    return machine.call(made, () if value is None else (value,))


def _new_object(machine: MachineState, arguments: Arguments) -> Any:
    return machine.call(arguments[0], arguments[1:])


BUILDERS: dict[str, Builder] = {
    "collections.OrderedDict": lambda machine, arguments: OrderedDict(_pairs(machine, arguments)),
    "collections.Counter": lambda machine, arguments: Counter(_pairs(machine, arguments)),
    "collections.defaultdict": _default_dict,
    "collections.deque": _members,
    "builtins.dict": _pairs,
    "builtins.list": _members,
    "builtins.tuple": lambda machine, arguments: tuple(_members(machine, arguments)),
    "builtins.set": _set,
    "builtins.frozenset": lambda machine, arguments: frozenset(_set(machine, arguments)),
    "builtins.bytes": _byte_string,
    "builtins.bytearray": _byte_string,
    "builtins.complex": _complex,
    "_codecs.encode": _byte_string,
    "copyreg._reconstructor": _reconstructed,
    "copyreg.__newobj__": _new_object,
    "datetime.datetime": _moment(datetime.datetime),
    "datetime.date": _moment(datetime.date),
    "datetime.time": _moment(datetime.time),
    "datetime.timedelta": _time_span,
    "datetime.timezone": _zone,
    "torch.Size": lambda machine, arguments: tuple(_members(machine, arguments)),
    "torch.device": _device,
    "torch.serialization._get_layout": _layout,
    **{f"pathlib.{name}": _path for name in PATHS},
}
"""Names that are safe to call in Python with any arguments, and their replacements."""

INERT = frozenset(
    {
        "argparse.Namespace",
        "types.SimpleNamespace",
        "uuid.UUID",
        "builtins.object",
        "builtins.slice",
        "builtins.range",
        "builtins.int",
        "builtins.float",
        "builtins.str",
        "builtins.bool",
    }
)
"""Other safe names of the standard library, kept as records or names."""
NAMESPACES = ("argparse.Namespace", "types.SimpleNamespace")

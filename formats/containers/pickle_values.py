"""What a pickle may become without importing anything: containers, byte strings, paths and times, each from its own arguments only."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .pickle_bytes import Span

if TYPE_CHECKING:
    from .pickle import Machine

Arguments = tuple[Any, ...]
Builder = Callable[["Machine", Arguments], Any]

ALIASES = {
    "__builtin__": "builtins",
    "copy_reg": "copyreg",
    "numpy._core.multiarray": "numpy.core.multiarray",
    "numpy._core.numeric": "numpy.core.numeric",
    "pathlib._local": "pathlib",
    "torch.tensor": "torch._tensor",
}
"""Modules that other versions of Python, numpy or torch call by another name."""
LATIN = ("latin1", "latin-1", "iso-8859-1")
PATHS = ("Path", "PosixPath", "WindowsPath", "PurePath", "PurePosixPath", "PureWindowsPath")


def _pairs(machine: Machine, arguments: Arguments) -> dict[Any, Any]:
    """A dictionary from nothing, another one, or a list of pairs."""
    if not arguments:
        return {}
    (given,) = arguments
    pairs = list(given.items()) if isinstance(given, dict) else [(key, value) for key, value in given]
    machine.grow(len(pairs))
    return {machine.key(key): value for key, value in pairs}


def _default_dict(machine: Machine, arguments: Arguments) -> dict[Any, Any]:
    return _pairs(machine, arguments[1:])


def _members(machine: Machine, arguments: Arguments) -> list[Any]:
    """The members of a list or set that is made from another container."""
    given = arguments[0] if arguments else ()
    if not isinstance(given, list | tuple | set | frozenset):
        raise TypeError(type(given).__name__)
    machine.grow(len(given))
    return list(given)


def _set(machine: Machine, arguments: Arguments) -> set[Any]:
    return {machine.key(value) for value in _members(machine, arguments)}


def _byte_string(machine: Machine, arguments: Arguments) -> bytes | Span:
    """Bytes from nothing, bytes, or text in latin-1, which is how protocol 2 holds them."""
    if not arguments:
        return b""
    given, *encoding = arguments
    if isinstance(given, bytes | Span) and not encoding:
        return given
    if not isinstance(given, str) or encoding[0] not in LATIN:
        raise TypeError(type(given).__name__)
    carrier = machine.cursor.carrier
    carrier.budget.charge(len(given), "a byte string", at=carrier.base + machine.at)
    return given.encode("latin-1")


def _complex(machine: Machine, arguments: Arguments) -> complex:
    if not all(isinstance(part, int | float) for part in arguments):
        raise TypeError
    return complex(*arguments)


def _path(machine: Machine, arguments: Arguments) -> str:
    text = "/".join(arguments)
    machine.grow(len(arguments) + len(text) // 64)
    return text if not text.startswith("//") else text[1:]


def _device(machine: Machine, arguments: Arguments) -> str:
    kind, *index = arguments
    return ":".join([kind, *(str(int(number)) for number in index)])


def _layout(machine: Machine, arguments: Arguments) -> str:
    (name,) = arguments
    return "".join((name,))


def _moment(kind: type[datetime.datetime] | type[datetime.date] | type[datetime.time]) -> Builder:
    def build(machine: Machine, arguments: Arguments) -> str:
        packed, *zone = arguments
        if not isinstance(packed, bytes):
            raise TypeError
        unpack: Callable[[bytes], Any] = kind
        moment: str = unpack(packed).isoformat()
        return moment + "".join(zone)

    return build


def _time_span(machine: Machine, arguments: Arguments) -> float:
    return datetime.timedelta(*arguments).total_seconds()


def _zone(machine: Machine, arguments: Arguments) -> str:
    minutes = round(arguments[0] / 60)
    return f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}"


def _reconstructed(machine: Machine, arguments: Arguments) -> Any:
    """How protocols 0 and 1 make an object: class, base class, and the base class's value."""
    made, _, value = arguments
    return machine.call(made, () if value is None else (value,))


def _new_object(machine: Machine, arguments: Arguments) -> Any:
    return machine.call(arguments[0], arguments[1:])


BUILDERS: dict[str, Builder] = {
    "collections.OrderedDict": _pairs,
    "collections.Counter": _pairs,
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
"""Names that are harmless to call in Python too, whatever their arguments, and what we make of them."""

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
"""Other harmless names of Python itself, which stay records or names."""
NAMESPACES = ("argparse.Namespace", "types.SimpleNamespace")

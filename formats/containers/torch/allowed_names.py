"""Allow list of names in pickles, and the errors for all others."""

from __future__ import annotations

import os
from collections.abc import Iterable
from fnmatch import fnmatchcase

from ....runtime.base.dataclass import dataclass
from ....runtime.base.errors import Error, UnsafeFileError, UnsupportedError
from ..pickle.builders import BUILDERS, INERT
from ..pickle.cursor import Carrier
from ..pickle.joblib_arrays import WRAPPER
from ..pickle.machine import Global, Machine, Value
from ..pickle.numpy_records import NUMPY_NAMES
from .module_classes import MODULE_CLASSES
from .tensor_records import TORCH_NAMES

ACCEPTED = frozenset(BUILDERS) | INERT | NUMPY_NAMES | TORCH_NAMES | MODULE_CLASSES | {WRAPPER}
SCRIPT_PREFIX = "__torch__."
"""Classes that a TorchScript archive defines itself; no Python module has this name."""

_EXECUTING = (
    "__builtin__ _aix_support _io _operator _osx_support _pickle _posixsubprocess _pyrepl _thread aiohttp ast asyncio "
    "bdb builtins cProfile "
    "cloudpickle code codecs codeop commands concurrent copy_reg copyreg ctypes dbm dill distutils doctest ensurepip "
    "fileinput ftplib functools "
    "gc http httplib httpx idlelib imaplib importlib inspect io itertools joblib jsonpickle lib2to3 linecache logging "
    "marshal mmap "
    "multiprocessing nt numpy.f2py numpy.load numpy.testing operator os pandas.eval pathlib pdb pickle pip pkgutil "
    "platform poplib posix profile "
    "pty pydoc requests resource runpy sched setuptools shelve shutil signal site smtplib socket socketserver sqlite3 "
    "ssl string subprocess sys "
    "tarfile telnetlib tempfile test threading timeit torch._C torch._dynamo torch._inductor torch.distributed "
    "torch.fx torch.hub torch.jit "
    "torch.load torch.multiprocessing torch.ops torch.package torch.serialization torch.storage._load_from_bytes "
    "torch.utils trace types unittest "
    "urllib urllib2 urllib3 uuid venv weakref webbrowser xmlrpc zipfile zipimport"
)
EXECUTING = frozenset(_EXECUTING.split())
"""Modules and names that run code, reach files or the network, or import others by name. They are refused even when
they are allowed."""
LISTED = 200
MODULES = (
    "torch.nn.modules.",
    "torch.nn.parallel.",
    "torchvision.models.",
    "ultralytics.nn.",
    "models.yolo.",
    "models.common.",
    "timm.models.",
)
"""Beginnings of class names that occur where a model was pickled rather than its weights."""
STATE_DICT = (
    "m = torch.load({0!r}, weights_only=False), where you trust the file, then torch.save(m.state_dict(), "
    '"weights.pth")'
    '; in a dictionary take its module first, m["model"]'
)
JOBLIB = "E-PKL-JOBLIB"
PICKLED_DIRECTLY = "torch.storage._load_from_bytes"


def accepted(name: str, *, script: bool = False) -> bool:
    """Whether a dotted name is in the table; `script` adds the classes of a TorchScript archive."""
    return name in ACCEPTED or (script and name.startswith(SCRIPT_PREFIX))


def executing(name: str) -> bool:
    """Whether a dotted name is, or lies in, something known to run code."""
    parts = name.split(".")
    return any(".".join(parts[:count]) in EXECUTING for count in range(1, len(parts) + 1))


def unknown(
    names: Iterable[Global], allowed: frozenset[str], *, made: Iterable[Global] = (), script: bool = False
) -> list[Global]:
    """The names that are neither in the table nor allowed by the user (patterns such as ``omegaconf.*``), each once;
    `made` are those called with arguments, which modules are not."""
    found: dict[str, Global] = {}
    modules = [item for item in made if item.name in MODULE_CLASSES]
    for item in (*names, *modules):
        known = accepted(item.name, script=script) and item not in modules
        if not known and (executing(item.name) or not any(fnmatchcase(item.name, pattern) for pattern in allowed)):
            found.setdefault(item.name, item)
    return list(found.values())


def refusal(file: str, names: list[Global], *, beside: Iterable[Global] = ()) -> UnsafeFileError:
    """The error for a pickle with such names, all of them named, one that runs code first; `beside`: all names that it
    holds."""
    worst = next((item for item in names if executing(item.name)), names[0])
    others = [item.name for item in names if item is not worst]
    listed = ", ".join(f"`{name}`" for name in others[:LISTED])
    more = (
        f", and also for {listed}" + (f" and {len(others) - LISTED} more" if len(others) > LISTED else "")
        if others
        else ""
    )
    why = f"asks Python to call `{worst.name}`{more}. Nothing was executed"
    return UnsafeFileError("E-PKL-GLOBAL", file, why, at=worst.at, hint=_hint(file, worst, beside))


def _hint(file: str, worst: Global, beside: Iterable[Global]) -> str:
    if worst.name == PICKLED_DIRECTLY:
        return (
            "The file was written with pickle.dump; unpickle it where you trust it, "
            'then torch.save(model.state_dict(), "weights.pth")'
        )
    if executing(worst.name):
        return "This name can run code; no option allows it. Inspect: candle-convert scan"
    package = worst.name.rpartition(".")[0].rpartition(".")[0] or worst.name.split(".")[0]
    option = f"--allow-global {worst.name} (or a pattern such as '{package}.*') reads it as an inert record"
    if any(item.name.startswith(MODULES) for item in (worst, *beside)):
        saved = STATE_DICT.format(os.path.basename(file.partition("!")[0]))
        return f"The file holds a pickled nn.Module; {option}. Or save its weights alone: {saved}"
    return f"If the class is only data: {option}"


def _refuse(
    carrier: Carrier, machine: Machine, allowed: frozenset[str], *, script: bool, cause: Error | None = None
) -> None:
    """Raise where the pickle holds names that are not accepted, or arrays of joblib, whose bytes its own loader looks
    for."""
    names = unknown(machine.globals, allowed, made=machine.made, script=script)
    arrays = next((name for name in machine.globals if name.name == WRAPPER), None)
    if arrays is not None:
        names = [name for name in names if executing(name.name)]  # bytes of arrays look like other names
    if names:
        raise refusal(carrier.file, names, beside=machine.globals) from cause
    if arrays is not None:
        hint = "Save the arrays with numpy.savez or safetensors, or the model as ONNX"
        raise UnsupportedError(
            JOBLIB, carrier.file, "is a joblib file of Python objects, not of weights", at=arrays.at, hint=hint
        ) from cause


@dataclass(frozen=True)
class Loaded:
    """A pickle's value, the position after its STOP, and how many opcodes made it."""

    value: Value
    end: int
    operations: int


def load(carrier: Carrier, start: int, allowed: frozenset[str], *, script: bool = False) -> Loaded:
    """The value of the pickle at `start`, when it holds accepted names only.

    Raises:
        UnsafeFileError: it holds others, whether or not it is well-formed.
        Error: it is malformed or too large.
    """
    machine = Machine(carrier, start)
    try:
        value = machine.run()
    except Error as error:
        _refuse(carrier, machine, allowed, script=script, cause=error)
        raise
    _refuse(carrier, machine, allowed, script=script)
    return Loaded(value, machine.cursor.position, machine.operations)

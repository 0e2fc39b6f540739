"""Plain values of a checkpoint: its dictionaries, lists, numbers and strings as torch.load(weights_only=True) gives
them, with what a caller makes of each tensor."""

from __future__ import annotations

import argparse
import types
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any

from ....runtime.base.dataclass import dataclass
from ....runtime.base.errors import LimitError, UnsupportedError
from ....runtime.tensor.dtype import BY_TORCH
from ....runtime.tensor.stored_tensor import StoredTensor
from ..pickle.builders import NAMESPACES
from ..pickle.cursor import Span
from ..pickle.machine import Global, Record, Value
from ..pickle.numpy_records import SCALAR, NotNumeric, array, is_array, scalar
from .checkpoint_walk import SCALARS
from .legacy_stream import Checkpoint
from .tensor_records import SCRIPT_VALUES, WRAPPERS

CODE = "E-PTH-OBJECT"
PARAMETERS = frozenset(name for name in WRAPPERS if name.rpartition(".")[2] not in ("Buffer", "Variable"))
FLAG = {"torch._utils._rebuild_tensor_v2": 4, "torch._utils._rebuild_tensor_v3": 4}
"""The argument that says whether a tensor requires gradients."""
CONTAINERS: dict[type, Callable[[Any], Any]] = {list: list, tuple: tuple, set: set, frozenset: frozenset}
SPACES = {"argparse.Namespace": argparse.Namespace, "types.SimpleNamespace": types.SimpleNamespace}


@dataclass(frozen=True)
class Found:
    """A tensor of a checkpoint.

    Attributes:
        tensor: its values, read when they are used.
        requires_grad: whether its gradients are recorded.
        is_parameter: whether it is an `nn.Parameter`.
    """

    tensor: StoredTensor
    requires_grad: bool
    is_parameter: bool


class PlainValues:
    """One pass over a checkpoint's value; what occurs twice is one object.

    Raises:
        UnsupportedError: it holds an object that is not a plain value, such as a pickled module.
    """

    def __init__(self, checkpoint: Checkpoint, file: str, depth: int, made: Callable[[Found], Any]) -> None:
        self.checkpoint = checkpoint
        self.file = file
        self.depth = depth
        self.made = made
        self._known: dict[int, Any] = {}
        self._open: set[int] = set()

    def value(self) -> Any:
        """The whole value."""
        if self.checkpoint.script:
            raise self._unsupported("a TorchScript module")
        return self._of(self.checkpoint.value)

    def _of(self, value: Value) -> Any:
        value = self.checkpoint.rebuilder.resolve(value)
        if isinstance(value, SCALARS):
            return value
        if isinstance(value, Span):
            return bytes(value.storage.read(0, value.nbytes))
        key = id(value)
        if key not in self._known:
            if key in self._open:
                raise self._unsupported("a container that holds itself")
            if len(self._open) >= self.depth:
                hint = "Raise it with limits(depth=1000)"
                raise LimitError("E-LIMIT-DEPTH", self.file, f"values are nested deeper than {self.depth}", hint=hint)
            self._open.add(key)
            self._known[key] = self._new(value)
            self._open.remove(key)
        return self._known[key]

    def _new(self, value: Value) -> Any:
        if isinstance(value, dict):
            kind = type(value) if type(value) in (OrderedDict, Counter) else dict
            return kind({name: self._of(item) for name, item in value.items()})
        if type(value) in CONTAINERS:
            return CONTAINERS[type(value)]([self._of(item) for item in value])
        if isinstance(value, Global) and value.name.removeprefix("torch.") in BY_TORCH:
            return BY_TORCH[value.name.removeprefix("torch.")]
        if isinstance(value, Record):
            return self._record(value)
        raise self._unsupported(value.name if isinstance(value, Global) else "a storage without a tensor")

    def _record(self, record: Record) -> Any:
        rebuilder = self.checkpoint.rebuilder
        if rebuilder.is_tensor(record):
            return self.made(Found(rebuilder.rebuild(record)[0], _requires_grad(record), record.name in PARAMETERS))
        try:
            if is_array(record):
                return array(record, rebuilder.file).numpy()
            if record.name == SCALAR:
                return scalar(record, rebuilder.file)
        except NotNumeric as error:
            raise self._unsupported(f"an array of {error}") from None
        if record.name in SCRIPT_VALUES and record.arguments:
            return self._of(record.arguments[0])
        if record.name in NAMESPACES and isinstance(record.state, dict):
            return SPACES[record.name](**{str(name): self._of(item) for name, item in record.state.items()})
        raise self._unsupported(record.name or "an unnamed object")

    def _unsupported(self, what: str) -> UnsupportedError:
        hint = "Take its tensors alone with load_file(path)"
        return UnsupportedError(CODE, self.file, f"holds {what}, which is neither a tensor nor plain data", hint=hint)


def _requires_grad(record: Record) -> bool:
    if record.name in WRAPPERS:
        return record.arguments[1] is True if len(record.arguments) > 1 else record.name in PARAMETERS
    place = FLAG.get(record.name)
    return place is not None and len(record.arguments) > place and record.arguments[place] is True

"""Steps of a module as plans: a step is traced once for each structure of batches, where it depends on tensors alone.

A step that reads the number of the batch or the state of the trainer, needs values in Python, draws Python's random
numbers, or changes attributes of its module would not do so again in a plan. That is found while it is traced, and such
a step runs in Python each time.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Callable, Iterator
from typing import Any

from ...nn.core.module import Module
from ...runtime.base.errors import UsageError
from ...tensors.core.tensor import Tensor
from ...tensors.core.trace import TRACE
from ...tensors.jit import jit
from .logged import Logged
from .random_state import draws_in_python, random_state, set_random_state
from .run import Run

NEEDS_VALUE = "E-TENSOR-TRACE"


class PythonOnly(Exception):
    """A step cannot be a plan; the message says why."""


class BatchNumber:
    """The number of a batch while a step is traced; a step that reads it is not traced."""

    def _read(self, *others: Any) -> Any:
        raise PythonOnly("it reads the number of the batch")

    __index__ = __int__ = __float__ = __bool__ = __hash__ = __str__ = __repr__ = _read
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __mod__ = __floordiv__ = __truediv__ = _read
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __format__ = _read


def read_in_python(what: str) -> None:
    """Tell that a step reads something that a plan would not read again."""
    if TRACE.changes is not None:
        raise PythonOnly(f"it reads {what}")


class TracedStep:
    """A step of a module.

    Args:
        run: whose collector takes what the step logs.
        module: whose attributes are watched.
        name: of the step, for messages.
        body: computes the step of a batch and its number; what it returns may be nested tensors.
        traced: whether the step may become a plan.
    """

    def __init__(self, run: Run, module: Module, name: str, body: Callable[..., Any], traced: bool) -> None:
        self._run = run
        self._module = module
        self._name = name
        self._body = body
        self._traced = traced
        self._plan = jit(self._trace)

    def __call__(self, batch: Any, number: int, *settings: Any) -> tuple[Any, Logged]:
        """The result of a step and what it logged.

        Args:
            settings: further arguments of the body, on which a plan depends.
        """
        if self._traced and has_only_tensors(batch):
            try:
                result, values, entries = self._plan(batch, *settings)
                return result, list(zip(entries, values, strict=True))
            except PythonOnly as reason:
                why = str(reason)
            except UsageError as error:
                if error.code != NEEDS_VALUE:
                    raise
                why = "it needs values of tensors"
            self._traced = False
            print(f"{self._name} of {type(self._module).__name__} is not one plan: {why}", file=sys.stderr)
        with self._run.collecting() as collector:
            result = self._body(batch, number, _fine, *settings)
        return result, collector.entries

    def _trace(self, batch: Any, *settings: Any) -> Any:
        attributes, state = _Attributes(self._module), random_state()

        def check() -> None:
            """Called by the body before it changes what an attempt in Python would change again."""
            if self._run.collector.python_value:
                raise PythonOnly("it logs a number that is not a tensor")
            changed = attributes.changed()
            if changed is not None:
                raise PythonOnly(f"it changes {changed}")
            if draws_in_python(state):
                raise PythonOnly("it draws random numbers of Python or NumPy")

        try:
            with self._run.collecting() as collector:
                result = self._body(batch, BatchNumber(), check, *settings)
        except (PythonOnly, UsageError):
            attributes.restore()
            set_random_state(state)
            raise
        entries = collector.entries
        return result, [value for _, value in entries], tuple([entry for entry, _ in entries])


def _fine() -> None:
    """Of steps in Python, which may read and change what they like."""


def detached(item: Any) -> Any:
    """A tensor without its gradient; anything else as it is."""
    return item.detach() if isinstance(item, Tensor) else item


def positional(method: Any, most: int) -> int:
    """Number of positional arguments that a method takes, of `most`."""
    code = getattr(method, "__func__", method).__code__
    takes_more = code.co_flags & inspect.CO_VARARGS
    return most if takes_more else min(most, code.co_argcount - inspect.ismethod(method))


def has_only_tensors(batch: Any) -> bool:
    """Whether there is nothing but tensors in nested lists and dictionaries."""
    if isinstance(batch, dict):
        return all(map(has_only_tensors, batch.values()))
    if isinstance(batch, list | tuple):
        return all(map(has_only_tensors, batch))
    return batch is None or isinstance(batch, Tensor)


class _Attributes:
    """The attributes of modules, and what lists, dictionaries, sets and plain objects among them contain."""

    def __init__(self, module: Module) -> None:
        self._held = [(owner, dict(table)) for owner, table in _tables(module)]
        self._inside = [
            (f"{owner}.{name}", item, _content(item))
            for owner, table in self._held
            for name, item in table.items()
            if _content(item) is not None and not name.startswith("_")
        ]
        self._tables = [table for _, table in _tables(module)]

    def changed(self) -> str | None:
        """The name of an attribute that is another, or contains something else."""
        for (owner, before), now in zip(self._held, self._tables, strict=True):
            for name in {*before, *now}:
                if name not in before or name not in now or before[name] is not now[name]:
                    return f"{owner}.{name}"
        for name, item, before_content in self._inside:
            if not _same(_content(item), before_content):
                return name
        return None

    def restore(self) -> None:
        """Give the attributes back what they had."""
        for (_, before), now in zip(self._held, self._tables, strict=True):
            now.clear()
            now.update(before)
        for _, item, content in self._inside:
            _refill(item, content)


def _tables(module: Module) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, each in module.named_modules():
        yield path or type(module).__name__, vars(each)


def _content(item: Any) -> Any:
    """A copy of what a container or a plain object holds; None for anything else."""
    if isinstance(item, list):
        return list(item)
    if isinstance(item, dict):
        return dict(item)
    if isinstance(item, set):
        return set(item)
    if isinstance(item, Module | Tensor | type) or callable(item) or not hasattr(item, "__dict__"):
        return None
    return dict(vars(item))


def _same(one: Any, other: Any) -> bool:
    if len(one) != len(other):
        return False
    if isinstance(one, dict):
        return all(name in other and each is other[name] for name, each in one.items())
    if isinstance(one, set):
        return {id(each) for each in one} == {id(each) for each in other}
    return all(each is given for each, given in zip(one, other, strict=True))


def _refill(item: Any, content: Any) -> None:
    with contextlib.suppress(AttributeError):
        table = item if isinstance(item, list | dict | set) else vars(item)
        table.clear()
        (table.extend if isinstance(table, list) else table.update)(content)

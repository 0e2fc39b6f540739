"""Values that `log` records: of steps, and their means over an epoch, by Lightning's rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...optim.core.saved_value import checked, mismatch
from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import UsageError
from ...tensors.core.tensor import Tensor

REDUCTIONS = ("mean", "sum", "min", "max")


@dataclass(frozen=True)
class Entry:
    """One call of `log`.

    Attributes:
        on_step, on_epoch: None for the default of the step: a training step is logged as it is, others over the epoch.
        rows: items of the batch, 0 if that is not known.
    """

    name: str
    prog_bar: bool = False
    logger: bool = True
    on_step: bool | None = None
    on_epoch: bool | None = None
    reduce_fx: str = "mean"
    rows: int = 0


Logged = list[tuple[Entry, Any]]
"""Entries with their values, in order."""


class Collector:
    """Takes what a step logs; a value that is not a tensor is noted in `python_value`."""

    def __init__(self) -> None:
        self.entries: Logged = []
        self.python_value = False

    def taken(self) -> Logged:
        """The entries, which are forgotten."""
        found, self.entries = self.entries, []
        return found

    def add(self, entry: Entry, value: Any) -> None:
        """Note a value; UsageError if it is not one number."""
        if entry.reduce_fx not in REDUCTIONS:
            why = f"{entry.name!r} is logged with reduce_fx {entry.reduce_fx!r}"
            raise UsageError("E-TRAIN-LOG", None, why, expected=", ".join(REDUCTIONS))
        if isinstance(value, Tensor):
            if value.numel() != 1:
                why = f"{entry.name!r} is logged with a tensor of shape {list(value.shape)}"
                raise UsageError("E-TRAIN-LOG", None, why, hint="Reduce it with mean() or sum()")
            value = value.detach()
        else:
            self.python_value = True
            try:
                value = float(value)
            except (TypeError, ValueError):
                why = f"{entry.name!r} is logged with {type(value).__name__}"
                raise UsageError("E-TRAIN-LOG", None, why, expected="a number or a tensor of one element") from None
        self.entries.append((entry, value))


@dataclass(frozen=True)
class Values:
    """Values by name.

    Attributes:
        to_write: what loggers are given; known: all; shown: next to the progress bar.
    """

    to_write: dict[str, float]
    known: dict[str, float]
    shown: dict[str, float]

    def add(self, entry: Entry, name: str, value: float) -> None:
        """Note a value under the name of the entry too, so that it can be watched by that."""
        self.known[entry.name] = self.known[name] = value
        if entry.logger:
            self.to_write[name] = value
        if entry.prog_bar:
            self.shown[name] = value

    def renamed(self, suffix: str) -> Values:
        """The values under longer names."""
        tables = (self.to_write, self.known, self.shown)
        return Values(*[{f"{name}{suffix}": value for name, value in table.items()} for table in tables])


class _Mean:
    """A value over the steps of an epoch."""

    def __init__(self, reduction: str) -> None:
        self.reduction = reduction
        self.total = 0.0
        self.weight = 0.0

    def add(self, value: float, rows: int) -> None:
        if self.reduction in ("min", "max"):
            known = self.total if self.weight else value
            self.total = min(known, value) if self.reduction == "min" else max(known, value)
            self.weight = 1
        else:
            share = rows if self.reduction == "mean" else 1
            self.total += value * share
            self.weight += share

    def value(self) -> float:
        return self.total / self.weight if self.reduction == "mean" else self.total


class Epoch:
    """The values that one epoch has logged."""

    def __init__(self) -> None:
        self._means: dict[str, _Mean] = {}
        self._names: dict[str, tuple[Entry, str]] = {}

    def add(self, entries: Logged, rows: int = 0, *, on_step: bool = False) -> Values:
        """Note the values of a step.

        Args:
            rows: items of the batch.
            on_step: whether values are published as they are, and not over the epoch, where `log` does not say so.
        """
        found = Values({}, {}, {})
        for entry, value in entries:
            number = float(value)
            as_step = on_step if entry.on_step is None else entry.on_step
            over_epoch = not on_step if entry.on_epoch is None else entry.on_epoch
            both = as_step and over_epoch
            if as_step:
                found.add(entry, f"{entry.name}_step" if both else entry.name, number)
            if over_epoch:
                mean = self._means.setdefault(entry.name, _Mean(entry.reduce_fx))
                mean.add(number, entry.rows or rows or 1)
                self._names[entry.name] = entry, f"{entry.name}_epoch" if both else entry.name
        return found

    def end(self) -> Values:
        """The values over the epoch."""
        found = Values({}, {}, {})
        for plain, (entry, name) in self._names.items():
            found.add(entry, name, self._means[plain].value())
        return found

    def state(self) -> list[Any]:
        """State for `restore`."""
        return [
            [[getattr(entry, each) for each in Entry.__dataclass_fields__], name, mean.total, mean.weight]
            for plain, (entry, name) in self._names.items()
            for mean in [self._means[plain]]
        ]

    def restore(self, state: Iterable[Any]) -> None:
        """Restore a state.

        Raises UsageError for values of another kind, and changes nothing then.
        """
        means, names = {}, {}
        for index, (fields, name, total, weight) in enumerate(state):
            entry = Entry(*checked(f"logged[{index}]", fields, list(vars(Entry("")).values())))
            mean = _Mean(entry.reduce_fx)
            mean.total, mean.weight = checked(f"logged[{index}]", [total, weight], [0.0, 0.0])
            if entry.reduce_fx not in REDUCTIONS or not mean.weight > 0:
                raise mismatch(f"logged[{index}]", f"{' or '.join(REDUCTIONS)} of a weight", entry.reduce_fx)
            means[entry.name], names[entry.name] = mean, (entry, checked(f"logged[{index}]", name, ""))
        self._means, self._names = means, names


def own_first(metrics: Mapping[str, float]) -> dict[str, float]:
    """Metrics in their order, those of validation after the others."""
    return dict(sorted(metrics.items(), key=lambda pair: pair[0].startswith("val_")))


def metric(metrics: Mapping[str, float], name: str, who: str) -> float:
    """A logged value by name; UsageError if it was not logged."""
    if name not in metrics:
        why = f"{who} watches {name!r}, which is not logged"
        raise UsageError("E-TRAIN-MONITOR", None, why, expected=", ".join(sorted(metrics)) or "a call of log()")
    return metrics[name]

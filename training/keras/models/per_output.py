"""Losses, metrics, weights and targets of each output of a model, by its name or its position."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ....runtime.base.errors import UsageError
from ....runtime.base.units import counted


def of_outputs(what: str, given: Any, outputs: Iterable[str]) -> dict[str, Any]:
    """A setting for each output: those of a dictionary or a list, or one for all.

    Args:
        what: the name of the setting, for errors.

    Raises UsageError for names that the model does not have, and for lists of another length.
    """
    names = list(outputs)
    if isinstance(given, Mapping):
        unknown = [each for each in given if each not in names]
        if unknown:
            why = f"{what} names the output {unknown[0]!r}, which the model does not have"
            raise UsageError("E-OPTION", None, why, expected=", ".join(names))
        return {name: given.get(name) for name in names}
    if isinstance(given, list | tuple):
        if len(given) != len(names):
            why = f"{what} is a list of {counted(len(given), 'item')} for {counted(len(names), 'output')}"
            raise UsageError("E-OPTION", None, why, hint=f"Outputs: {', '.join(names)}")
        return dict(zip(names, given, strict=True))
    return dict.fromkeys(names, given)


def metrics_of_outputs(given: Any, outputs: Iterable[str]) -> dict[str, Any]:
    """The metrics of each output; those of a model with one output may be nested in any way, as in Keras."""
    names = list(outputs)
    return {names[0]: _flat(given)} if len(names) == 1 else of_outputs("metrics", given, names)


def target_of(targets: Mapping[str, Any], name: str) -> Any:
    """The targets of an output; UsageError if there are none."""
    if name not in targets:
        why = f"the targets of the output {name!r} are missing"
        raise UsageError("E-TRAIN-DATA", None, why, hint=f"There are targets of {', '.join(map(repr, targets))}")
    return targets[name]


def _flat(item: Any) -> list[Any]:
    if isinstance(item, Mapping):
        return _flat(list(item.values()))
    if isinstance(item, list | tuple):
        return [measure for each in item for measure in _flat(each)]
    return [] if item is None else [item]

"""The state of an optimizer as a dictionary in PyTorch's layout, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...runtime.base.errors import UsageError
from ...tensors.core.conversion import array_of
from ...tensors.core.expression import leaf
from ...tensors.core.tensor import Tensor
from .saved_value import count

State = dict[str, Any]


def saved(
    state: Mapping[Tensor, State], groups: Sequence[Mapping[str, Any]], unsaved: frozenset[str]
) -> dict[str, Any]:
    """``state`` by the number of the parameter, and ``param_groups`` with numbers in place of parameters."""
    numbers: dict[Tensor, int] = {}
    made = []
    for group in groups:
        places = [numbers.setdefault(each, len(numbers)) for each in group["params"]]
        made.append({**{name: value for name, value in group.items() if name != "params"}, "params": places})
    kept = {
        number: {name: _tensor(value) for name, value in state[each].items() if name not in unsaved}
        for each, number in numbers.items()
        if each in state
    }
    return {"state": {number: found for number, found in kept.items() if found}, "param_groups": made}


def loaded(
    given: Mapping[str, Any], groups: Sequence[Mapping[str, Any]]
) -> tuple[list[State], dict[Tensor, tuple[dict[str, Any], State]]]:
    """The options of each group, and for each parameter with state its group's new options and the state: arrays, and
    numbers for what is not a tensor of dims.

    Raises UsageError if the groups are not of the same sizes.
    """
    try:
        theirs, states = [dict(each) for each in given["param_groups"]], given["state"]
        sizes = [len(group["params"]) for group in theirs]
        by_number = {
            number: {key: each for key, each in states[number].items() if each is not None} for number in states
        }
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        why = f"this is not the state of an optimizer ({error!r})"
        raise UsageError("E-OPTIM-STATE", None, why, expected="keys state and param_groups") from error
    ours = [len(group["params"]) for group in groups]
    if sizes != ours:
        why = f"the state is of groups of {sizes} parameters, the optimizer has groups of {ours}"
        raise UsageError("E-OPTIM-STATE", None, why, hint="Load it into an optimizer of the same parameters")
    options = [{name: value for name, value in group.items() if name != "params"} for group in theirs]
    found = {}
    for group, wanted, group_options in zip(groups, theirs, options, strict=True):
        for each, number in zip(group["params"], wanted["params"], strict=True):
            of_one = by_number.get(count("the number of a parameter", number))
            if of_one is not None:
                found[each] = {**group, **group_options}, {name: _array(value) for name, value in of_one.items()}
    return options, found


def _tensor(value: Any) -> Tensor:
    return value if isinstance(value, Tensor) else Tensor(leaf(np.array(value, np.float32)))


def _array(value: Any) -> np.ndarray:
    return value.array() if isinstance(value, Tensor) else array_of(value)

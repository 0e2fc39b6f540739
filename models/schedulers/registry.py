"""Schedulers by their class name: the constant `SCHEDULER` of any module of this folder."""

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ...runtime.base.errors import UnsupportedError
from .scheduler import Rule, Scheduler


@cache
def rules() -> dict[str, Rule]:
    """All rules by the `_class_name` of a configuration."""
    modules = (importlib.import_module(f".{item.name}", __package__) for item in pkgutil.iter_modules([str(_FOLDER)]))
    return {rule.name: rule for module in modules if (rule := getattr(module, "SCHEDULER", None))}


def load(config: Mapping[str, Any]) -> Scheduler:
    """The scheduler of a mapping as in scheduler_config.json.

    Raises:
        UnsupportedError: for a class, key or choice that has no rule here.
    """
    name = config.get("_class_name")
    rule = rules().get(str(name))
    if rule is None:
        known = ", ".join(sorted(rules()))
        raise UnsupportedError("E-SCHEDULER", None, f"scheduler {name} is unknown", hint=f"Use one of {known}.")
    return Scheduler(rule, rule.options(config))


_FOLDER = Path(__file__).parent

"""Schedulers by their class name: the constant `SCHEDULER` of any module of this folder."""

from collections.abc import Mapping
from typing import Any

from ...runtime.base.errors import UnsupportedError
from ...runtime.plugin.discovery import Plugins
from .scheduler import Rule, Scheduler

SCHEDULERS = Plugins("models.schedulers", "SCHEDULER")


def rules() -> dict[str, Rule]:
    """All rules by the `_class_name` of a configuration."""
    return {rule.name: rule for rule in SCHEDULERS.all()}


def load(config: Mapping[str, Any]) -> Scheduler:
    """The scheduler of a mapping as in scheduler_config.json.

    Raises:
        UnsupportedError: for a class, key or choice that has no rule here.
    """
    name = config.get("_class_name")
    known = rules()
    rule = known.get(str(name))
    if rule is None:
        raise UnsupportedError(
            "E-SCHEDULER", None, f"scheduler {name} is unknown", hint=f"Use one of {', '.join(sorted(known))}"
        )
    return Scheduler(rule, rule.options(config))

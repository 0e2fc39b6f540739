"""Schedulers by their class name: the constant `SCHEDULER` of any module of this folder."""

from collections.abc import Mapping
from typing import Any

from ...runtime.base.errors import UnsupportedError, UsageError
from ...runtime.base.nearest_name import did_you_mean
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


def replaced(scheduler: Scheduler, name: str) -> Scheduler:
    """Another scheduler with the options of a checkpoint's own, as far as it has them.

    Args:
        name: of its module, such as ``euler_ancestral``; with hyphens too.

    Raises:
        UsageError: for an unknown name.
    """
    known = SCHEDULERS.names()
    module = name.replace("-", "_").lower()
    if module not in known:
        hint = did_you_mean(module, known, ", ".join(known))
        raise UsageError("E-SCHEDULER", None, f"unknown scheduler {name!r}", hint=hint)
    rule = SCHEDULERS.load(module)
    options = {key: value for key, value in scheduler.options.items() if key in rule.defaults or key in rule.choices}
    return Scheduler(rule, rule.options({key: value for key, value in options.items() if _supported(rule, key, value)}))


def _supported(rule: Rule, key: str, value: Any) -> bool:
    """Whether a rule has a value among its choices; a model's kind of prediction is never left out."""
    return key == "prediction_type" or key not in rule.choices or value in rule.choices[key]

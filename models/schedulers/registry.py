"""Schedulers by their class name: the constant `SCHEDULER` of any module of this folder."""

from collections.abc import Mapping
from typing import Any

from ...runtime.base.errors import UnsupportedError, UsageError
from ...runtime.base.nearest_name import did_you_mean
from ...runtime.plugin.discovery import Plugins
from .schedule.web_ui_names import SAMPLERS, of_words, sampler_words
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
        name: of its module, such as ``euler_ancestral``, with hyphens too; its class; or what AUTOMATIC1111's web UI
            calls it, such as ``Euler a`` or ``DPM++ 2M Karras``, which states the schedule type too: ``Euler`` for
            the usual one, where ``euler`` keeps the checkpoint's.

    Raises:
        UsageError: for an unknown name, and a schedule type that the scheduler does not have.
    """
    known = SCHEDULERS.names()
    module = name.replace("-", "_").lower()
    named: list[tuple[str, Mapping[str, Any]]] = [
        (each, {}) for each in known if each == module or SCHEDULERS.load(each).name == name
    ]
    named = [*named, *of_words(name)] if name == name.lower() else [*of_words(name), *named]
    if not named:
        hint = did_you_mean(module, known, ", ".join([*known, *dict.fromkeys(words for words, _, _ in SAMPLERS)]))
        raise UsageError("E-SCHEDULER", None, f"unknown scheduler {name!r}", hint=hint)
    own = (each for each in named if SCHEDULERS.load(each[0]) is scheduler.rule)
    module, stated = next(own, named[0])
    rule = SCHEDULERS.load(module)
    accepted = {*rule.defaults, *rule.choices}
    lost = [option for option, value in stated.items() if value and option not in accepted]
    if lost:
        raise UsageError("E-SCHEDULER", None, f"{rule.name} has no {lost[0]}, which {name!r} asks for")
    options = {key: value for key, value in scheduler.options.items() if key in accepted}
    options = {key: value for key, value in options.items() if _supported(rule, key, value)}
    return Scheduler(rule, rule.options(options | {key: value for key, value in stated.items() if key in accepted}))


def web_ui_words(scheduler: Scheduler) -> tuple[str, str]:
    """A scheduler's name in AUTOMATIC1111's web UI, and its schedule type, empty for the usual one; the class of one
    that it lacks."""
    module = next((each for each in SCHEDULERS.names() if SCHEDULERS.load(each) is scheduler.rule), "")
    return sampler_words(module, scheduler.options) or (scheduler.rule.name, "")


def _supported(rule: Rule, key: str, value: Any) -> bool:
    """Whether a rule has a value among its choices; a model's kind of prediction is never left out."""
    return key == "prediction_type" or key not in rule.choices or value in rule.choices[key]

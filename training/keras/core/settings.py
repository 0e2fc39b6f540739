"""Settings of an object: the arguments it was made with, as Keras writes them to files."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ....runtime.base.errors import UsageError
from ....runtime.base.nearest_name import did_you_mean
from ....tensors import namespace as namespace  # tensors get their operations

_ANY = (
    "autocast", "axis_specs", "batch_input_shape", "ema_momentum", "ema_overwrite_frequency", "flash_attention",
    "implementation", "input_axes", "input_length", "jit_compile", "lora_alpha", "output_axes", "run_eagerly", "seed",
    "seed_generator", "steps_per_execution", "unroll", "use_cudnn", "auto_scale_loss",
    "renorm_momentum",
)  # fmt: skip
_NONE = (
    "activity_regularizer", "alpha_constraint", "beta_constraint", "bias_constraint", "depthwise_constraint",
    "embeddings_constraint", "gamma_constraint", "gradient_accumulation_steps", "kernel_constraint", "lora_rank",
    "loss_scale_factor", "pointwise_constraint", "quantization_config", "recurrent_constraint", "renorm_clipping",
    "weights",
)  # fmt: skip
_FALSE = (
    "keepdims", "optional", "ragged", "renorm", "rms_scaling", "sparse", "stateful", "synchronized", "time_major",
    "use_ema",
)  # fmt: skip
WITHOUT_EFFECT: dict[str, tuple[Any, ...] | None] = {
    **dict.fromkeys(_ANY),
    **dict.fromkeys(_NONE, (None,)),
    **dict.fromkeys(_FALSE, (None, False)),
    "data_format": (None, "channels_last"),
    "dtype": (None, "float32"),
}
"""Settings that may stand in a call or a file, and their values that ask for what is done anyway; None for all."""


def is_usual(name: str, value: Any) -> bool:
    """Whether a setting that a class does not have asks for what is done anyway."""
    if name not in WITHOUT_EFFECT:
        return False
    if isinstance(value, Mapping):
        value = (value.get("config") or {}).get("name")
    known = WITHOUT_EFFECT[name]
    return known is None or value in known


class Recorded(type):
    """Classes whose objects know the arguments they were made with."""

    if not TYPE_CHECKING:  # type checkers would take any arguments

        def __call__(cls, *arguments: Any, **options: Any) -> Any:
            made = super().__call__(*arguments, **options)
            bound = inspect.signature(cls.__init__).bind(made, *arguments, **options)
            bound.apply_defaults()
            given = dict(bound.arguments)
            for name, each in inspect.signature(cls.__init__).parameters.items():
                if each.kind is each.VAR_KEYWORD:
                    given.update(given.pop(name))
                if each.kind is each.VAR_POSITIONAL or name == "self":
                    given.pop(name)
            object.__setattr__(made, "_settings", given)
            return made


class Configured(metaclass=Recorded):
    """An object with Keras' `get_config` and `from_config`."""

    _settings: dict[str, Any]

    def get_config(self) -> dict[str, Any]:
        """The arguments that the object was made with."""
        return dict(self._settings)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Any:
        """An object of these settings; UsageError for those that it does not have."""
        return cls(**fitting_settings(cls, config))


def fitting_settings(cls: type, config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that a class takes; UsageError for others that change what it computes."""
    known = inspect.signature(cls.__init__).parameters  # type: ignore[misc]
    found = {}
    for name, value in config.items():
        if (name in known and known[name].kind is not inspect.Parameter.VAR_KEYWORD) or (
            name in ("name", "trainable", *getattr(cls, "constrained", ()), *getattr(cls, "through_options", ()))
            and any(each.kind is each.VAR_KEYWORD for each in known.values())
        ):
            found[name] = value
        elif not is_usual(name, value) and value not in (None, False):
            raise unknown_setting(cls, name, value, list(known)[1:])
    return found


def without_effect(cls: type, options: Mapping[str, Any]) -> None:
    """UsageError for settings that a class does not have, unless they ask for what is done anyway."""
    for name, value in options.items():
        if not is_usual(name, value):
            known = list(inspect.signature(cls.__init__).parameters)  # type: ignore[misc]
            raise unknown_setting(cls, name, value, known[1:])


def unknown_setting(cls: type, name: str, value: Any, known: list[str]) -> UsageError:
    """The error of a setting that a class does not have."""
    hint = did_you_mean(name, known, f"Settings: {', '.join(known)}")
    return UsageError("E-OPTION", None, f"{cls.__name__} does not take {name}={value!r}", hint=hint)


def snake_case(name: str) -> str:
    """Keras' name of a class in lower case: ``Conv2D`` is ``conv2d``, ``MaxPooling2D`` is ``max_pooling2d``."""
    name = re.sub(r"\W+", "", name)
    name = re.sub("(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub("([a-z])([A-Z])", r"\1_\2", name).lower()


def by_name(table: Mapping[str, Any], given: Any, what: str, make: bool = True) -> Any:
    """An object of a table: of its name in either spelling, of a class, a file's description, or as it is.

    Args:
        make: call what is found, a class.

    Raises UsageError for names that there are not.
    """
    config: Mapping[str, Any] = {}
    if isinstance(given, Mapping):
        given, config = given.get("class_name"), given.get("config") or {}
        if isinstance(config, str):
            given, config = config, {}
    if isinstance(given, str):
        found = table.get(given) or {snake_case(name): each for name, each in table.items()}.get(given.lower())
        found = found or {name.lower(): each for name, each in table.items()}.get(given.lower())
        if found is None:
            hint = did_you_mean(given, table, f"Known: {', '.join(table)}")
            raise UsageError("E-TRAIN-NAME", None, f"there is no {what} {given!r}", hint=hint)
        return found(**fitting_settings(found, config)) if make and isinstance(found, type) else found
    return given() if make and isinstance(given, type) else given


def described(item: Any) -> Any:
    """A setting as Keras writes it to a file: numbers and words, and objects by the names of their classes."""
    if isinstance(item, Configured):
        config = {name: described(each) for name, each in item.get_config().items()}
        return {"module": getattr(type(item), "file_module", "keras"), "class_name": type(item).__name__,
                "config": config, "registered_name": None}  # fmt: skip
    if isinstance(item, dict):
        return {name: described(each) for name, each in item.items()}
    if isinstance(item, list | tuple):
        return [described(each) for each in item]
    if callable(item):
        return getattr(item, "__name__", type(item).__name__)
    return item


Function = Callable[..., Any]

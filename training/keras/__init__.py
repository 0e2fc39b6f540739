"""Models with Keras' interface: layers, models, losses, metrics and optimizers by Keras' names.

Names load on first use.
"""

from __future__ import annotations

import functools
import importlib
from typing import TYPE_CHECKING, Any

from ...runtime.plugin.second_names import provide_second_names
from .core.provided import PROVIDED
from .public_modules import MODULES

if TYPE_CHECKING:
    from .core.layer import Layer as Layer
    from .layers.basic import Input as Input
    from .models.model import Model as Model
    from .models.sequential import Sequential as Sequential

_OBJECTS = {
    "Initializer": "core.initializers",
    "Input": "layers.basic",
    "InputLayer": "layers.basic",
    "KerasTensor": "core.symbolic",
    "Layer": "core.layer",
    "Loss": "objectives.losses",
    "Metric": "objectives.metrics",
    "Model": "models.model",
    "Optimizer": "objectives.optimizers",
    "Sequential": "models.sequential",
}
"""Classes and functions: the module that has each under the same name."""

provide_second_names({f"candle_convert.keras.{name}": f"{__name__}.{module}" for name, module in MODULES.items()})


def _loaded(module: str, name: str) -> Any:
    return getattr(importlib.import_module(f"{__name__}.saving.{module}"), name)


for _name, _module in (
    ("load_model", "archive"), ("load_weights", "archive"), ("model_config", "description"), ("model_of", "reading"),
    ("save_model", "archive"), ("save_weights", "weights_file"),
):  # fmt: skip
    PROVIDED.provide(_name, functools.partial(_loaded, _module, _name))

if not TYPE_CHECKING:  # for mypy a module with __getattr__ has every name, misspelled ones too

    def __getattr__(name: str) -> Any:
        if name in MODULES:
            return importlib.import_module(f"{__name__}.{MODULES[name]}")
        if name in _OBJECTS:
            return getattr(importlib.import_module(f"{__name__}.{_OBJECTS[name]}"), name)
        if name == "__all__":
            return __dir__()
        from ...runtime.base.nearest_name import nearest

        meant = None if name.startswith("_") else nearest(name, __dir__())
        hint = f". Did you mean {meant!r}?" if meant else ""
        raise AttributeError(f"module 'candle_convert.keras' has no attribute {name!r}{hint}")


def __dir__() -> list[str]:
    return sorted({*(name for name in MODULES if "." not in name), *_OBJECTS})

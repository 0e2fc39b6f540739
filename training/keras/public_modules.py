"""The modules of `cc.keras` by Keras' names. Nothing is imported before a name is used."""

from __future__ import annotations

MODULES = {
    "activations": "core.activations",
    "backend": "backend",
    "callbacks": "callbacks",
    "constraints": "core.constraints",
    "datasets": "datasets",
    **{
        f"datasets.{name}": f"datasets.{name}"
        for name in ("boston_housing", "california_housing", "fashion_mnist", "mnist")
    },
    "initializers": "core.initializers",
    "layers": "layers",
    "losses": "objectives.losses",
    "metrics": "objectives.metrics",
    "models": "models",
    "ops": "ops",
    "optimizers": "objectives.optimizers",
    "optimizers.schedules": "objectives.schedules",
    "regularizers": "core.regularizers",
    "saving": "saving",
    "utils": "utils",
}
"""Modules by their names in `keras`."""

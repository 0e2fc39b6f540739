"""The modules of `cc.keras` by Keras' names. Nothing is imported before a name is used."""

from __future__ import annotations

MODULES = {
    "activations": "core.activations",
    "backend": "backend",
    "callbacks": "callbacks",
    "initializers": "core.initializers",
    "layers": "layers",
    "losses": "objectives.losses",
    "metrics": "objectives.metrics",
    "models": "models",
    "optimizers": "objectives.optimizers",
    "optimizers.schedules": "objectives.schedules",
    "regularizers": "core.regularizers",
    "saving": "saving",
    "utils": "utils",
}
"""Modules by their names in `keras`."""

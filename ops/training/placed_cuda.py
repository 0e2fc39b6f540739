"""Training: gradients are written out as other operators."""

from __future__ import annotations

from ...runtime.cuda.place import on_cpu, within
from . import gradient

on_cpu("it is written out as other operators when a model is opened", *within(gradient))

"""Training: gradients are written out as other operators; optimizers run on the CPU."""

from __future__ import annotations

from ...runtime.cuda.place import on_cpu, within
from . import gradient, optimizers

on_cpu("it is written out as other operators when a model is opened", *within(gradient))
on_cpu("no kernel has been written for it yet", *within(optimizers))

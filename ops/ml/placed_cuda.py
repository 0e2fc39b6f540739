"""Maps and texts run on the CPU."""

from __future__ import annotations

from ...runtime.cuda.place import on_cpu, within
from . import category, map

on_cpu("it takes or gives maps and texts", *within(category, map))

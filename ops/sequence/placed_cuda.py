"""Sequences and optionals stay on the CPU."""

from __future__ import annotations

from ...runtime.cuda.place import on_cpu, within
from . import optional, sequence, split

on_cpu("sequences and optionals are Python objects", *within(optional, sequence, split))

"""Texts stay on the CPU."""

from __future__ import annotations

from ...runtime.cuda.place import on_cpu, within
from . import text

on_cpu("texts are Python objects", *within(text))

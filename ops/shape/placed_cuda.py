"""Operators of shapes that run on the CPU."""

from __future__ import annotations

from ...runtime.cuda.place import on_cpu, within
from . import constant

on_cpu("it is a weight, or a text", *within(constant))

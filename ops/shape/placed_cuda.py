"""Operators of shapes that run on the CPU."""

from __future__ import annotations

from ...runtime.cuda.place import on_cpu, within
from . import constant, unique

on_cpu("the length of its result depends on data", *within(unique))
on_cpu("it is a weight, or a text", *within(constant))

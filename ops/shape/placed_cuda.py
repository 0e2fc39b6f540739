"""Operators whose results are as long as data says."""

from __future__ import annotations

from ...runtime.cuda.place import on_cpu, within
from . import constant, non_zero, unique

on_cpu("the length of its result depends on data", *within(non_zero, unique))
on_cpu("it is a weight, or a text", *within(constant))

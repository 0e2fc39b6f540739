"""Texts stay on the CPU."""

from __future__ import annotations

from ...runtime.cuda.place import on_cpu, within
from . import text, tf_idf

on_cpu("texts are Python objects", *within(text))
on_cpu("its entries are texts or counted by looking them up", *within(tf_idf))

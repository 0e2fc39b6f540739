"""Control flow is decided on the CPU; the subgraphs themselves run on the device."""

from __future__ import annotations

from ...runtime.cuda.place import on_cpu, within
from . import branch, iteration, loop, scan

on_cpu("what runs next is decided on the CPU; the subgraph runs on the device", *within(branch, iteration, loop, scan))

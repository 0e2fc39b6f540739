"""Operators: what a node of the graph does."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Op:
    """An operator by its ONNX name and domain ("" is ai.onnx), since the given opset."""

    name: str
    domain: str = ""
    since: int = 1


@dataclass(frozen=True)
class Foreign(Op):
    """An operator that we do not know; it is carried through untouched and only running it is refused."""

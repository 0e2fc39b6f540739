"""Type of options that are shares: numbers from 0 to 1."""

from __future__ import annotations

import math
from typing import Any

import click


class Share(click.FloatRange):
    """A number from 0 to 1; NaN, which compares with none, is refused as one outside of the range."""

    def __init__(self) -> None:
        super().__init__(0, 1)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found: float = super().convert(value, param, ctx)
        if math.isnan(found):
            self.fail(f"{value} is not in the range 0<=x<=1.", param, ctx)
        return found

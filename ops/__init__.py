"""Operators, one small file each: shape rule, kernels, reference, examples. Quantized block types live in `quants/`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..runtime.plugin.provided import Provided

PROVIDED = Provided(__name__)

if TYPE_CHECKING:
    from collections.abc import Callable

    missing: Callable[..., list[tuple[str, str, int | None, int, str]]]
else:
    __getattr__ = PROVIDED.get

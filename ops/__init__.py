"""Operators, one small file each: shape rule, kernels, reference, examples. Quantized block types live in `quants/`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..runtime.graph import Graph


def missing(model: str | os.PathLike[str] | Graph) -> list[tuple[str, str, int | None, int, str]]:
    """Operators of a model that cannot be run here, as (op, domain, opset, nodes, why); empty when all can."""
    from ..runtime import registry

    found: Any = registry.load("convert.running", "coverage", "missing_of")(model)
    return list(found)

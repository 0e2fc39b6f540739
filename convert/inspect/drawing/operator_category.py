"""Operator categories, which give boxes their colour: by the module that defines the operator."""

from __future__ import annotations

import inspect
import re

from ....runtime.base.process_cache import process_cache
from ....runtime.ir.op import Op
from ....runtime.ir.registry import operator

FOREIGN = "foreign"
CATEGORIES = tuple(
    (re.compile(pattern), category)
    for pattern, category in (
        (r"^quantized\.|^contrib\.quantized\.(?!dynamic)", "quantized"),
        (r"^attention\.|^contrib\.attention\.|moe", "attention"),
        (r"norm", "normalization"),
        (r"pool", "pool"),
        (r"activation|softmax|gelu", "activation"),
        (r"^conv\.|^nn\.|^recurrent\.|gemm|(?<!dynamic_)matmul|einsum|fused|dynamic_lstm", "layer"),
        (r"^control\.|^sequence\.", "control"),
        (r"^(shape|gather|generator|sort)\.", "shape"),
        (r"^(reduce|collective)\.", "reduction"),
        (r"^(elementwise|cast|linalg|random|signal)\.", "math"),
        (r"", "other"),
    )
)
"""The first pattern that the operator's module (its path below ``ops``) has."""


@process_cache
def category(name: str, domain: str) -> str:
    """The category of an operator; `FOREIGN` for an unknown one."""
    found = _known(name, domain)
    if found is None or found.compute is None:
        return FOREIGN
    place = found.compute.__module__.split(".ops.")[-1]
    return next(category for pattern, category in CATEGORIES if pattern.search(place))


@process_cache
def input_names(name: str, domain: str) -> tuple[str, ...]:
    """The names of an operator's inputs; empty for unknown operators, fewer than there are where the last ones are
    alike."""
    found = _known(name, domain)
    if found is None or found.compute is None:
        return ()
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(found.compute).parameters.values()
    return tuple(parameter.name for parameter in parameters if parameter.kind in kinds and parameter.name != "call")


def _known(name: str, domain: str) -> Op | None:
    return operator(name, domain)

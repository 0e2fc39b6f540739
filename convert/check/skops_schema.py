"""Scan of skops schemas: JSON that lists the Python objects of a saved estimator by module and class."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...formats.containers.torch.allowed_names import accepted, executing
from ...runtime.contract.format import Finding

PACKAGES = ("sklearn", "numpy", "scipy", "builtins", "collections", "lightgbm", "xgboost", "catboost", "skops")
"""Packages whose estimators, arrays and containers skops files consist of."""
LOADERS_OF_CODE = (
    "FunctionNode",
    "MethodNode",
    "OperatorFuncNode",
    "PartialNode",
    "TypeNode",
    "ReduceNode",
    "ObjectNode",
)
"""Kinds of nodes that import what they name."""


def code_in(item: dict[str, Any], member: str | None) -> Iterator[Finding]:
    """The code that a node of a schema makes skops import, if it is none of the usual packages'."""
    loader, module, kind = (item.get(key) for key in ("__loader__", "__module__", "__class__"))
    if not (isinstance(loader, str) and isinstance(module, str) and isinstance(kind, str)):
        return
    name = f"{module}.{kind}"
    if (
        accepted(name)
        or (module.partition(".")[0] in PACKAGES and not executing(name))
        or (loader not in LOADERS_OF_CODE and not executing(name))
    ):
        return
    why = "which can run code" if executing(name) else "which is not an estimator's"
    yield Finding("E-SCAN-SKOPS", "danger", f"the schema asks Python to import `{name}`, {why}", member=member)

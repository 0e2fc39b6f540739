"""`cc.special`: functions of mathematics by the names of torch.special."""

from __future__ import annotations

from typing import Any

from ..tensors.core.registry import FUNCTIONS
from ..tensors.namespace import public

PREFIX = "special_"
ELSEWHERE = {
    "digamma": "digamma", "erf": "erf", "erfc": "erfc", "erfinv": "erfinv", "exp2": "exp2", "expit": "sigmoid",
    "expm1": "expm1", "gammainc": "igamma", "gammaincc": "igammac", "gammaln": "lgamma", "log1p": "log1p",
    "log_softmax": "log_softmax", "logit": "logit", "logsumexp": "logsumexp", "multigammaln": "mvlgamma",
    "polygamma": "polygamma", "psi": "digamma", "round": "round", "sinc": "sinc", "softmax": "softmax",
    "xlogy": "xlogy",
}  # fmt: skip
"""Functions that the package has under other names."""


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return __dir__()
    found = public(ELSEWHERE.get(name, f"{PREFIX}{name}"))
    if found is None or name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return found


def __dir__() -> list[str]:
    return sorted({*ELSEWHERE, *(name.removeprefix(PREFIX) for name in FUNCTIONS if name.startswith(PREFIX))})

"""Activation fusion: written-out Gelu (erf and tanh), Swish (SiLU, QuickGelu), HardSwish and Mish become operators."""

from __future__ import annotations

import math

from ...ir.builder import Builder
from ...ir.graph import Value
from ..pattern.pattern import Pattern, call, number, product, var
from ..pattern.rewrite_rules import Build, Match, Rule, is_float

X = var("x")
SQRT_HALF = math.sqrt(0.5)
SQRT_2_OVER_PI = math.sqrt(2 / math.pi)
CUBIC = 0.044715


def _becomes(operator: str, **attributes: str) -> Build:
    """Replacement that applies `operator` to `x` alone."""

    def build(match: Match, build: Builder) -> Value | None:
        return build.add(operator, [match["x"]], dict(attributes)) if is_float(match["x"]) else None

    return build


def _swish(match: Match, build: Builder) -> Value | None:
    alpha = match.number("alpha")
    return (
        build.add("Swish", [match["x"]], {} if alpha == 1 else {"alpha": alpha})
        if is_float(match["x"]) and alpha > 0
        else None
    )


def _hard_swish(match: Match, build: Builder) -> Value | None:
    slope, middle = (match.attributes("gate")[name] for name in ("alpha", "beta"))
    exact = abs(slope - 1 / 6) < 1e-7 and middle == 0.5
    return build.add("HardSwish", [match["x"]]) if exact and is_float(match["x"]) else None


def _softplus(x: Pattern) -> Pattern:
    return call("Softplus", x) | call("Log", 1 + call("Exp", x))


_inner = product(SQRT_2_OVER_PI, X + product(CUBIC, X, X, X)) | product(SQRT_2_OVER_PI, X, 1 + product(CUBIC, X, X))
_merged = product(X, SQRT_2_OVER_PI + product(SQRT_2_OVER_PI * CUBIC, X, X)) | product(SQRT_2_OVER_PI, X) + product(
    SQRT_2_OVER_PI * CUBIC, X, X, X
)
_bounded = (
    call("Clip", X + 3.0, 0.0, 6.0)
    | call("Min", call("Max", X + 3.0, 0.0), 6.0)
    | call("Max", call("Min", X + 3.0, 6.0), 0.0)
)

FUSION_RULES = (
    Rule("Gelu", product(X, 0.5, 1 + call("Erf", product(X, SQRT_HALF))), _becomes("Gelu"), 20),
    Rule(
        "Gelu with tanh", product(X, 0.5, 1 + call("Tanh", _inner | _merged)), _becomes("Gelu", approximate="tanh"), 20
    ),
    Rule("Gelu with halves", product(X, 0.5 + product(0.5, call("Erf", product(X, SQRT_HALF)))), _becomes("Gelu"), 20),
    Rule("Swish", product(X, call("Sigmoid", product(X, number("alpha")))), _swish, 24),
    Rule("HardSwish of HardSigmoid", product(X, call("HardSigmoid", X, name="gate")), _hard_swish, 14),
    Rule("HardSwish", product(X, 1 / 6, _bounded), _becomes("HardSwish"), 14),
    Rule("Mish", product(X, call("Tanh", _softplus(X))), _becomes("Mish"), 18),
)

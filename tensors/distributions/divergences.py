"""kl_divergence: how far a distribution is from another one, in nats (Kullback and Leibler 1951)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ...runtime.base.process_cache import PROCESS, owned
from ..core.registry import FUNCTIONS
from ..core.tensor import Tensor
from ..special.gamma import digamma, lgamma
from .continuous import Exponential, Gumbel, Laplace, Uniform
from .discrete import Bernoulli, Binomial, Categorical, Geometric, OneHotCategorical, Poisson
from .distribution import Distribution, softplus, sum_last
from .gamma import Beta, Dirichlet, Gamma
from .made_of_others import Independent
from .normal import HalfNormal, LogNormal, MultivariateNormal, Normal

Formula = Callable[[Any, Any], Tensor]
FORMULAS: dict[tuple[type, type], Formula] = owned({}, PROCESS)
"""Formulas by the classes of both distributions."""


def register_kl(type_p: type, type_q: type) -> Callable[[Formula], Formula]:
    """Decorate the formula of the divergence for two classes of distributions."""

    def registered(formula: Formula) -> Formula:
        FORMULAS[type_p, type_q] = formula
        return formula

    return registered


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """The mean of ``log p(x) - log q(x)`` for x drawn from p, of the shape of the batch.

    Raises NotImplementedError for classes that no formula is known for.
    """
    for one in type(p).__mro__:
        for other in type(q).__mro__:
            if (one, other) in FORMULAS:
                return FORMULAS[one, other](p, q)
    raise NotImplementedError(f"no formula of kl_divergence of {type(p).__name__} and {type(q).__name__} is known")


def _where(condition: Tensor, one: Any, other: Any) -> Tensor:
    found: Tensor = FUNCTIONS["where"](condition, one, other)
    return found


@register_kl(Normal, Normal)
def _(p: Normal, q: Normal) -> Tensor:
    ratio = (p.scale / q.scale) ** 2
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale) ** 2 - 1 - ratio.log())


@register_kl(LogNormal, LogNormal)
def _(p: LogNormal, q: LogNormal) -> Tensor:
    return kl_divergence(Normal(p.loc, p.scale), Normal(q.loc, q.scale))


@register_kl(HalfNormal, HalfNormal)
def _(p: HalfNormal, q: HalfNormal) -> Tensor:
    return kl_divergence(Normal(0, p.scale), Normal(0, q.scale))


@register_kl(MultivariateNormal, MultivariateNormal)
def _(p: MultivariateNormal, q: MultivariateNormal) -> Tensor:
    from ..linalg.decompositions import solve_triangular

    half = (q.scale_tril.diagonal(dim1=-2, dim2=-1).log() - p.scale_tril.diagonal(dim1=-2, dim2=-1).log()).sum(-1)
    spread = solve_triangular(q.scale_tril, p.scale_tril, upper=False).square().sum((-2, -1))
    away = solve_triangular(q.scale_tril, (q.loc - p.loc).unsqueeze(-1), upper=False).square().sum((-2, -1))
    return half + 0.5 * (spread + away - p.event_shape[0])


@register_kl(Bernoulli, Bernoulli)
def _(p: Bernoulli, q: Bernoulli) -> Tensor:
    one = p.probs * (softplus(-q.logits) - softplus(-p.logits))
    return one + (1 - p.probs) * (softplus(q.logits) - softplus(p.logits))


@register_kl(Binomial, Binomial)
def _(p: Binomial, q: Binomial) -> Tensor:
    return p.total_count * (p.probs * (p.logits - q.logits) + (-p.probs).log1p() - (-q.probs).log1p())


@register_kl(Categorical, Categorical)
@register_kl(OneHotCategorical, OneHotCategorical)
def _(p: Any, q: Any) -> Tensor:
    found = p.probs * (p.logits - q.logits)
    found = _where(q.probs == 0, math.inf, found)
    return _where(p.probs == 0, 0.0, found).sum(-1)


@register_kl(Geometric, Geometric)
def _(p: Geometric, q: Geometric) -> Tensor:
    return -p.entropy() - (-q.probs).log1p() / p.probs - q.logits


@register_kl(Poisson, Poisson)
def _(p: Poisson, q: Poisson) -> Tensor:
    return p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)


@register_kl(Exponential, Exponential)
def _(p: Exponential, q: Exponential) -> Tensor:
    ratio = q.rate / p.rate
    return ratio - ratio.log() - 1


@register_kl(Laplace, Laplace)
def _(p: Laplace, q: Laplace) -> Tensor:
    ratio, away = p.scale / q.scale, (p.loc - q.loc).abs()
    return -ratio.log() + away / q.scale + ratio * (-away / p.scale).exp() - 1


@register_kl(Uniform, Uniform)
def _(p: Uniform, q: Uniform) -> Tensor:
    found = ((q.high - q.low) / (p.high - p.low)).log()
    return _where((q.low > p.low).logical_or(q.high < p.high), math.inf, found)


@register_kl(Gumbel, Gumbel)
def _(p: Gumbel, q: Gumbel) -> Tensor:
    ratio = p.scale / q.scale
    near, far = q.loc / q.scale, p.loc / q.scale
    away = -ratio.log() - near + far
    return away + ratio * 0.57721566490153286061 + (near + lgamma(1 + ratio) - far).exp() - (1 + 0.57721566490153286061)


@register_kl(Gamma, Gamma)
def _(p: Gamma, q: Gamma) -> Tensor:
    first = q.concentration * (p.rate / q.rate).log()
    second = lgamma(q.concentration) - lgamma(p.concentration)
    third = (p.concentration - q.concentration) * digamma(p.concentration)
    return first + second + third + (q.rate - p.rate) * (p.concentration / p.rate)


@register_kl(Beta, Beta)
def _(p: Beta, q: Beta) -> Tensor:
    return kl_divergence(p._dirichlet(), q._dirichlet())


@register_kl(Dirichlet, Dirichlet)
def _(p: Dirichlet, q: Dirichlet) -> Tensor:
    total = p.concentration.sum(-1)
    first = lgamma(total) - lgamma(q.concentration.sum(-1))
    second = (lgamma(p.concentration) - lgamma(q.concentration)).sum(-1)
    slope = digamma(p.concentration) - digamma(total).unsqueeze(-1)
    return first - second + ((p.concentration - q.concentration) * slope).sum(-1)


@register_kl(Independent, Independent)
def _(p: Independent, q: Independent) -> Tensor:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError("the divergence of outcomes of different dims is not known")
    return sum_last(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)

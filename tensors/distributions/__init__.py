"""`cc.distributions`: probability distributions by PyTorch's names, with its samples, log probabilities, entropies and
divergences.

Parameters are tensors or numbers, which broadcast. Samples have the shape ``sample_shape + batch_shape + event_shape``.
Samples of Gamma, Beta, Dirichlet, Chi2, StudentT, Poisson and Binomial are not those that PyTorch draws for a seed, and
have no gradients.
"""

from __future__ import annotations

from .continuous import Cauchy as Cauchy
from .continuous import Exponential as Exponential
from .continuous import Gumbel as Gumbel
from .continuous import Laplace as Laplace
from .continuous import Uniform as Uniform
from .discrete import Bernoulli as Bernoulli
from .discrete import Binomial as Binomial
from .discrete import Categorical as Categorical
from .discrete import Geometric as Geometric
from .discrete import OneHotCategorical as OneHotCategorical
from .discrete import OneHotCategoricalStraightThrough as OneHotCategoricalStraightThrough
from .discrete import Poisson as Poisson
from .distribution import Distribution as Distribution
from .divergences import kl_divergence as kl_divergence
from .divergences import register_kl as register_kl
from .gamma import Beta as Beta
from .gamma import Chi2 as Chi2
from .gamma import Dirichlet as Dirichlet
from .gamma import Gamma as Gamma
from .gamma import StudentT as StudentT
from .made_of_others import Independent as Independent
from .made_of_others import MixtureSameFamily as MixtureSameFamily
from .made_of_others import TransformedDistribution as TransformedDistribution
from .normal import HalfNormal as HalfNormal
from .normal import LogNormal as LogNormal
from .normal import MultivariateNormal as MultivariateNormal
from .normal import Normal as Normal
from .relaxed import RelaxedBernoulli as RelaxedBernoulli
from .relaxed import RelaxedOneHotCategorical as RelaxedOneHotCategorical
from .transforms import AffineTransform as AffineTransform
from .transforms import ComposeTransform as ComposeTransform
from .transforms import ExpTransform as ExpTransform
from .transforms import SigmoidTransform as SigmoidTransform
from .transforms import TanhTransform as TanhTransform
from .transforms import Transform as Transform

__all__ = [
    "AffineTransform", "Bernoulli", "Beta", "Binomial", "Categorical", "Cauchy", "Chi2", "ComposeTransform",
    "Dirichlet", "Distribution", "ExpTransform", "Exponential", "Gamma", "Geometric", "Gumbel", "HalfNormal",
    "Independent", "Laplace", "LogNormal", "MixtureSameFamily", "MultivariateNormal", "Normal", "OneHotCategorical",
    "OneHotCategoricalStraightThrough", "Poisson", "RelaxedBernoulli", "RelaxedOneHotCategorical",
    "SigmoidTransform", "StudentT", "TanhTransform", "Transform", "TransformedDistribution", "Uniform",
    "kl_divergence", "register_kl",
]  # fmt: skip


def __dir__() -> list[str]:
    return list(__all__)

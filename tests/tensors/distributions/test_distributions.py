"""Distributions have torch's log probabilities, moments, entropies, divergences, and samples where they say so."""

import candle_convert as cc
import numpy as np
import pytest
import torch

X = [0.2, 0.55, 0.85]
MU, SCALE = [0.3, -0.7, 1.2], [0.5, 1.5, 0.2]
ROWS = [[0.1, 0.6, 0.3], [0.5, 0.2, 0.9]]


def _t(t, values):
    return t.tensor(values, dtype=t.float64)


CASES = {
    "Normal": (lambda t: (_t(t, MU), _t(t, SCALE)), X),
    "LogNormal": (lambda t: (_t(t, MU), _t(t, SCALE)), X),
    "HalfNormal": (lambda t: (_t(t, SCALE),), X),
    "Laplace": (lambda t: (_t(t, MU), _t(t, SCALE)), X),
    "Cauchy": (lambda t: (_t(t, MU), _t(t, SCALE)), X),
    "Gumbel": (lambda t: (_t(t, MU), _t(t, SCALE)), X),
    "Uniform": (lambda t: (_t(t, MU), _t(t, [1.0, 2.0, 3.0])), [0.5, 0.0, 2.0]),
    "Exponential": (lambda t: (_t(t, SCALE),), X),
    "Gamma": (lambda t: (_t(t, SCALE), _t(t, X)), X),
    "Beta": (lambda t: (_t(t, SCALE) + 1, _t(t, X)), X),
    "Chi2": (lambda t: (_t(t, SCALE),), X),
    "StudentT": (lambda t: (_t(t, [0.5, 1.5, 3.0]), _t(t, MU), _t(t, SCALE)), X),
    "Dirichlet": (lambda t: (_t(t, ROWS) + 1,), [[0.2, 0.3, 0.5], [0.1, 0.1, 0.8]]),
    "Poisson": (lambda t: (_t(t, SCALE),), [0.0, 2.0, 1.0]),
    "Bernoulli": (lambda t: (_t(t, X),), [1.0, 0.0, 1.0]),
    "Geometric": (lambda t: (_t(t, X),), [0.0, 3.0, 1.0]),
    "Binomial": (lambda t: (4, _t(t, X)), [0.0, 3.0, 4.0]),
    "Categorical": (lambda t: (_t(t, ROWS),), [1.0, 2.0]),
    "OneHotCategorical": (lambda t: (_t(t, ROWS),), [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]),
    "MultivariateNormal": (lambda t: (_t(t, MU), t.eye(3, dtype=t.float64) * 2 + 0.5), X),
}
NOT_TORCHS_SAMPLES = {"Gamma", "Beta", "Chi2", "StudentT", "Dirichlet", "Poisson", "Binomial"}
MADE_BY_INTELS_LIBRARY = {"Bernoulli", "Cauchy", "Exponential"}
"""Whose samples PyTorch draws in another way on Intel's processors."""


def _same(ours, theirs, rtol=1e-9):
    np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), rtol, 1e-12)


@pytest.mark.parametrize("name", CASES)
def test_formulas(name):
    given, values = CASES[name]
    ours, theirs = (getattr(t.distributions, name)(*given(t)) for t in (cc, torch))
    assert (ours.batch_shape, ours.event_shape) == (theirs.batch_shape, theirs.event_shape)
    _same(ours.log_prob(_t(cc, values)), theirs.log_prob(_t(torch, values)))
    for what in ("mean", "mode", "variance", "stddev", "entropy", "cdf"):
        try:
            expected = getattr(theirs, what)
            expected = expected(*([_t(torch, values)] if what == "cdf" else [])) if callable(expected) else expected
        except NotImplementedError:
            continue
        if (name, what) == ("StudentT", "cdf") or (name, what) == ("Beta", "cdf"):
            continue
        found = getattr(ours, what)
        _same(found(*([_t(cc, values)] if what == "cdf" else [])) if callable(found) else found, expected)


@pytest.mark.parametrize("name", CASES)
def test_samples(name):
    given, _ = CASES[name]
    cc.manual_seed(4)
    torch.manual_seed(4)
    ours, theirs = (getattr(t.distributions, name)(*given(t)).sample((3,)) for t in (cc, torch))
    assert ours.shape == theirs.shape
    if name not in NOT_TORCHS_SAMPLES | MADE_BY_INTELS_LIBRARY | {"Categorical", "OneHotCategorical"}:
        _same(ours, theirs)


@pytest.mark.parametrize("name", sorted(NOT_TORCHS_SAMPLES))
def test_means_of_samples(name):
    given, _ = CASES[name]
    cc.manual_seed(0)
    found = getattr(cc.distributions, name)(*given(cc))
    if name == "StudentT":
        found = cc.distributions.StudentT(_t(cc, [5.0, 6.0]))
    drawn = found.sample((20000,))
    np.testing.assert_allclose(drawn.mean(0).numpy(), found.mean.numpy(), 0.05, 0.05)
    np.testing.assert_allclose(drawn.var(0).numpy(), found.variance.numpy(), 0.15, 0.05)


PAIRS = [
    ("Normal", (MU, SCALE), (SCALE, X)), ("LogNormal", (MU, SCALE), (SCALE, X)), ("HalfNormal", (SCALE,), (X,)),
    ("Bernoulli", (X,), (X[::-1],)), ("Categorical", (ROWS,), (ROWS[::-1],)), ("Exponential", (SCALE,), (X,)),
    ("Geometric", (X,), (X[::-1],)), ("Poisson", (SCALE,), (X,)), ("Laplace", (MU, SCALE), (SCALE, X)),
    ("Uniform", ([0.0, 0.5], [1.0, 1.0]), ([-1.0, 0.6], [2.0, 2.0])), ("Gamma", (SCALE, X), (X, SCALE)),
    ("Gumbel", (MU, SCALE), (SCALE, X)), ("Beta", (SCALE, X), (X, SCALE)), ("Dirichlet", (ROWS,), (ROWS[::-1],)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "one", "other"), PAIRS, ids=[each[0] for each in PAIRS])
def test_divergences(name, one, other):
    def found(t):
        p, q = (getattr(t.distributions, name)(*[_t(t, each) for each in given]) for given in (one, other))
        return t.distributions.kl_divergence(p, q)

    _same(found(cc), found(torch))


def test_divergence_of_vectors():
    def found(t):
        one, other = (t.distributions.Normal(_t(t, each), _t(t, SCALE)) for each in (MU, X))
        made = [t.distributions.Independent(each, 1) for each in (one, other)]
        covariance = t.eye(3, dtype=t.float64) * 2 + 0.5
        p, q = (t.distributions.MultivariateNormal(_t(t, each), covariance * 2) for each in (MU, X))
        return t.stack([t.distributions.kl_divergence(*made), t.distributions.kl_divergence(p, q)])

    _same(found(cc), found(torch))
    with pytest.raises(NotImplementedError, match="formula"):
        cc.distributions.kl_divergence(cc.distributions.Normal(0.0, 1.0), cc.distributions.Poisson(1.0))


def test_gradients():
    def gradients(t):
        mu, scale = (t.tensor(each, dtype=t.float64, requires_grad=True) for each in (MU, SCALE))
        t.manual_seed(1)
        made = t.distributions.Normal(mu, scale)
        (
            made.rsample((2,)).sum() + t.distributions.kl_divergence(made, t.distributions.Normal(0.0, 1.0)).sum()
        ).backward()
        return mu.grad, scale.grad

    for one, other in zip(gradients(cc), gradients(torch), strict=True):
        _same(one, other)


def test_made_of_others():
    def found(t):
        d = t.distributions
        squashed = d.TransformedDistribution(d.Normal(_t(t, MU), _t(t, SCALE)), [d.TanhTransform(cache_size=1)])
        t.manual_seed(2)
        drawn = squashed.rsample()
        steps = [d.ExpTransform(), d.AffineTransform(1.0, 2.0), d.SigmoidTransform()]
        chain = d.TransformedDistribution(d.Normal(_t(t, MU), _t(t, SCALE)), steps)
        components = d.Independent(d.Normal(_t(t, ROWS).T, 1 + _t(t, ROWS).T), 1)
        mixture = d.MixtureSameFamily(d.Categorical(_t(t, X)), components)
        relaxed = d.RelaxedOneHotCategorical(_t(t, 0.5), _t(t, ROWS))
        t.manual_seed(2)
        soft = relaxed.rsample()
        flags = d.RelaxedBernoulli(_t(t, 0.5), _t(t, X))
        return [
            drawn, squashed.log_prob(drawn), squashed.log_prob(_t(t, [0.1, -0.2, 0.3])),
            chain.log_prob(_t(t, [0.9, 0.95, 0.99])), mixture.log_prob(_t(t, [0.5, 0.1])), mixture.mean,
            mixture.variance, soft, relaxed.log_prob(soft), flags.log_prob(_t(t, X)),
            d.Normal(_t(t, MU), _t(t, SCALE)).icdf(_t(t, X)), d.Categorical(_t(t, ROWS)).enumerate_support(),
            d.Normal(_t(t, MU), _t(t, SCALE)).expand((2, 3)).log_prob(_t(t, X)),
        ]  # fmt: skip

    for one, other in zip(found(cc), found(torch), strict=True):
        _same(one, other, 1e-7)


def test_parameters_that_make_no_sense():
    with pytest.raises(ValueError, match="above 0"):
        cc.distributions.Normal(0.0, -1.0)
    with pytest.raises(cc.UsageError, match="0 to 1"):
        cc.distributions.Bernoulli(cc.tensor([1.5]))
    with pytest.raises(ValueError, match="give one"):
        cc.distributions.Categorical()
    with pytest.raises(NotImplementedError, match="gradients"):
        cc.distributions.Poisson(1.0).rsample()
    assert not cc.distributions.Gamma(1.0, 1.0).has_rsample

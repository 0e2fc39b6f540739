"""Gradients of losses and of Dropout."""

from __future__ import annotations

import numpy as np

from ...loss import negative_log_likelihood
from ...random import bernoulli, dropout, multinomial, normal, uniform
from ...rules.expression import Term
from ..gradient_rule import Step, differentiated, without_gradient


def _grads(step: Step, logs: Term) -> tuple[Term, Term | None]:
    """The derivatives of the loss by the log-probabilities, minus the weight of each label's class at that class, and
    by the weights."""
    x, labels, weights = (*step.x, None)[:3]
    assert x is not None
    assert labels is not None
    g, ignored = step.grad, step.attributes["ignore_index"]
    zero = labels.call("Sub", labels)
    counted = (
        None if ignored is None else labels.call("Equal", step.integers(ignored).call("CastLike", labels)).call("Not")
    )
    chosen = labels if counted is None else counted.call("Where", labels, zero)
    share = zero.call("CastLike", g) + 1 if weights is None else weights.call("Gather", chosen)
    if counted is not None:
        share = counted.where(share, 0)
    mean = step.attributes["reduction"] == "mean"
    per_label = g / share.call("ReduceSum", keepdims=0) if mean else g
    switch = step.integers([0, 1]).call("CastLike", g)
    hot = chosen.call(
        "OneHot",
        x.length(1).call("Reshape", Term(step.build.constant(np.zeros(0, np.int64)), step.build)),
        switch,
        axis=1,
    )
    by_logs = -(hot * (per_label * share).call("Unsqueeze", step.integers([1])))
    if weights is None:
        return by_logs, None
    picked = -(hot * logs).call("ReduceSum", step.integers([1]), keepdims=0)
    distance = picked - step.output(0) if mean else picked
    flat, zero_grad = step.integers([-1]), g.number(0)
    parts = distance * per_label if counted is None else counted.call("Where", distance * per_label, zero_grad)
    by_weights = weights.filled(0).call(
        "ScatterElements", chosen.call("Reshape", flat), parts.call("Reshape", flat), axis=0, reduction="add"
    )
    return by_logs, by_weights


@differentiated(negative_log_likelihood.negative_log_likelihood_loss)
def _negative_log_likelihood(step: Step) -> list[Term | None]:
    by_logs, by_weights = _grads(step, step.input(0))
    return [by_logs, None, by_weights]


@differentiated(negative_log_likelihood.softmax_cross_entropy_loss)
def _softmax_cross_entropy(step: Step) -> list[Term | None]:
    """The gradient of log-softmax, of the loss and of its second output together."""
    logs, by_weights = step.output(1), None
    g = step.g[1] if len(step.g) > 1 else None
    if step.g[0] is not None:
        by_logs, by_weights = _grads(step, logs)
        g = by_logs if g is None else g + by_logs
    assert g is not None
    return [g - logs.call("Exp") * g.call("ReduceSum", step.integers([1])), None, by_weights]


@differentiated(dropout.dropout)
def _dropout(step: Step) -> list[Term | None]:
    """Pass the gradient through kept elements, with their scale."""
    _, ratio, training = (*step.x, None, None)[:3]
    g = step.grad
    if training is None:
        return [g]
    kept = step.output(1).call("CastLike", g)
    scale = 1 / (1 - (g.number(0.5) if ratio is None else ratio.call("CastLike", g)))
    return [g * kept * training.where(scale, 1)]


without_gradient(
    bernoulli.bernoulli,
    multinomial.multinomial,
    normal.random_normal,
    normal.random_normal_like,
    uniform.random_uniform,
    uniform.random_uniform_like,
)

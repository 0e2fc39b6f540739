"""Optimizer steps on the device, decomposed into other operators."""

from __future__ import annotations

from collections.abc import Callable

from ...runtime.cuda.plan.kernel_api import decomposed
from ...runtime.tensor.dtype import F32, I64
from ..rules.decompose_cuda import Form, dtype_of, forms
from ..rules.expression import Term
from .optimizer import adagrad, adam, momentum

Step = Callable[[Form, "list[Term]"], "list[Term]"]


def _each(kinds: int, step: Step) -> Callable[[Form], None]:
    """For each variable the outputs of `step`, which takes it and what belongs to it; outputs of one kind follow each
    other."""

    def formula(form: Form) -> None:
        count = (len(form.node.inputs) - 2) // kinds
        for index in range(count):
            made = step(form, [form.input(2 + kind * count + index) for kind in range(kinds)])
            for place, term in enumerate(made):
                form.give(place * count + index, term)

    return formula


def _rate(form: Form, like: Term) -> Term:
    return form.cast(form.reshaped(form.input(0), 1), dtype_of(like)).call("Squeeze", form.constant([0]))


def _times(form: Form) -> Term:
    return form.cast(form.reshaped(form.cast(form.input(1), I64), 1), F32).call("Squeeze", form.constant([0]))


def _slope(form: Form, x: Term, gradient: Term) -> Term:
    return x * form.attributes["norm_coefficient"] + gradient


def _adagrad(form: Form, given: list[Term]) -> list[Term]:
    x, gradient, square = given
    rate = form.cast(form.cast(_rate(form, x), F32) / (_times(form) * form.attributes["decay_factor"] + 1), dtype_of(x))
    slope = _slope(form, x, gradient)
    square = square + slope * slope
    return [x - rate * slope / (square.call("Sqrt") + form.attributes["epsilon"]), square]


def _adam(form: Form, given: list[Term]) -> list[Term]:
    x, gradient, average, square = given
    alpha, beta, post = (form.attributes[name] for name in ("alpha", "beta", "norm_coefficient_post"))
    slope = _slope(form, x, gradient)
    average, square = average * alpha + slope * (1 - alpha), square * beta + slope * slope * (1 - beta)
    times = _times(form)
    begun = times.call("Max", form.constant(1, "float32"))
    falls, rises = (1 - form.constant(factor, "float32").call("Pow", begun) for factor in (alpha, beta))
    scale = (times > 0).where(rises.call("Sqrt") / falls, form.constant(1, "float32"))
    factor = form.cast(scale * form.cast(_rate(form, x), F32), dtype_of(x))
    return [(x - factor * average / (square.call("Sqrt") + form.attributes["epsilon"])) * (1 - post), average, square]


def _momentum(form: Form, given: list[Term]) -> list[Term]:
    x, gradient, velocity = given
    alpha, beta = form.attributes["alpha"], form.attributes["beta"]
    slope = _slope(form, x, gradient)
    share = (_times(form) > 0).where(form.constant(beta, "float32"), form.constant(1, "float32"))
    velocity = velocity * alpha + form.cast(share, dtype_of(x)) * slope
    direction = slope + velocity * alpha if form.attributes["mode"] == "nesterov" else velocity
    return [x - _rate(form, x) * direction, velocity]


decomposed(adagrad)(forms(_each(3, _adagrad)))
decomposed(adam)(forms(_each(4, _adam)))
decomposed(momentum)(forms(_each(3, _momentum)))

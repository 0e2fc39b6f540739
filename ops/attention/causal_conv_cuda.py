"""CausalConvWithState on the device: a depthwise convolution over the state and the input."""

from __future__ import annotations

import numpy as np

from ...runtime.cuda.plan.kernel_api import decomposed
from ..rules.decompose_cuda import Form, dtype_of, forms, lengths
from .causal_conv import causal_conv_with_state


@decomposed(causal_conv_with_state)
@forms
def causal_conv_of_others(form: Form) -> None:
    """A convolution of each channel by itself over the state and the input."""
    x, weight, past = form.input(0), form.input(1), form.optional_input(3)
    batch, channels, length = lengths(x)
    carried = lengths(weight)[2] - 1
    if past is None and carried:
        past = form.constant(np.zeros((batch, channels, carried)), dtype_of(x).as_numpy())
    whole = x if past is None or not carried else past.call("Concat", x, axis=2)
    y = whole.call("Conv", weight, form.optional_input(2), group=channels)
    if (form.attributes["activation"] or "none") != "none":
        y = y * y.call("Sigmoid")
    form.give(0, y)
    if form.is_used(1):
        form.give(1, form.part(whole, 2, length, length + carried))

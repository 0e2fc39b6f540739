"""Zeros of both signs, infinities and NaN: values are torch's."""

import itertools
import math

import candle_convert as cc
import numpy as np
import pytest
import torch

SPECIAL = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan]
PAIRS = np.array(list(itertools.product(SPECIAL, SPECIAL)), np.float32)
FORMULAS = [
    "m.atan2(a, b)", "m.hypot(a, b)", "m.heaviside(a, b)", "m.lerp(a, b, 0.5)", "m.lerp(a, b, 1.0)",
    "m.lerp(a, b, 0.25)", "m.lerp(a, b, m.sigmoid(b))", "m.digamma(a * 2)", "m.maximum(a, b)", "m.pow(a, b)",
    "m.remainder(a, b)", "m.fmod(a, b)", "m.logaddexp(a, b)", "m.xlogy(a, b)", "m.copysign(a, b)", "m.sinc(a)",
    "m.nn.functional.threshold(a, 0.5, 7)", "m.nn.functional.softshrink(a)", "m.nn.functional.hardshrink(a)",
    "m.nn.functional.hardtanh(a)", "m.nn.functional.relu6(a)", "m.nn.functional.gelu(a)", "m.nn.functional.silu(a)",
    "m.nn.functional.softplus(a)", "m.nn.functional.logsigmoid(a)", "m.nn.functional.elu(a)",
    "m.nn.functional.kl_div(a, b, reduction='none')", "m.nn.functional.smooth_l1_loss(a, b, reduction='none')",
]  # fmt: skip


@pytest.mark.parametrize("formula", FORMULAS)
def test_values(formula):
    wide = "gelu" in formula  # torch's f32 is NaN for inf on AVX-512
    theirs, ours = (
        eval(formula, {"m": m, "a": m.tensor(pairs[:, 0]), "b": m.tensor(pairs[:, 1])}).numpy()
        for m, pairs in ((torch, PAIRS.astype(np.float64) if wide else PAIRS), (cc, PAIRS))
    )
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    if "atan2" in formula or "copysign" in formula:
        np.testing.assert_array_equal(np.signbit(ours[ours == 0]), np.signbit(theirs[theirs == 0]))

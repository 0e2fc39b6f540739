"""Native losses of labels against NumPy."""

import numpy as np
import pytest
from candle_convert.runtime.base.errors import UsageError
from candle_convert.runtime.ir.op import case
from candle_convert.tests.oracles.native_vs_numpy import natively

RNG = np.random.default_rng(3)


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("shape", [(40, 7), (5, 6, 9, 2)])
def test_losses(shape, reduction):
    logs = RNG.standard_normal(shape).astype(np.float32)
    labels = RNG.integers(0, shape[1], (shape[0], *shape[2:]))
    for kind in (np.int64, np.int32):
        natively("NegativeLogLikelihoodLoss", case(logs, labels.astype(kind), reduction=reduction), rtol=1e-5)
        natively("NegativeLogLikelihoodLoss", case(logs, labels.astype(kind), reduction=reduction, ignore_index=2))


def test_labels_that_are_not_classes():
    with pytest.raises(UsageError, match="not a class"):
        natively("NegativeLogLikelihoodLoss", case(np.zeros((2, 3), np.float32), np.array([0, 3])))

"""Labels that are not classes: the error names them and the number of classes, and none counts from the end."""

import candle_convert as cc
import pytest
from candle_convert.nn.functional import cross_entropy, ctc_loss


def test_labels_beyond_the_classes_are_named():
    with pytest.raises(cc.Error, match=r"the class 3 of 3 classes \(expected 0 to 2\)"):
        cross_entropy(cc.zeros(2, 3), cc.tensor([0, 3]))
    with pytest.raises(cc.Error, match="targets from 1 to 3 for 3 classes"):
        ctc_loss(cc.zeros(5, 1, 3), cc.tensor([[3, 1]]), [5], [2])


@pytest.mark.parametrize("label", [-1, 3])
def test_labels_of_a_traced_function(label):
    with pytest.raises(cc.Error, match="outside of the axis"):
        cc.jit(cross_entropy)(cc.zeros(2, 3), cc.tensor([0, label]))

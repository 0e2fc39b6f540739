"""Models that end with Softmax or Sigmoid: losses by name take the logits, as Keras' do, and say so."""

import candle_convert as cc
import numpy as np
import pytest
import torch

RNG = np.random.default_rng(0)
X = RNG.normal(size=(64, 5)).astype(np.float32)
CLASSES = (X[:, 0] > 0).astype(np.int64) + (X[:, 1] > 0)
WEIGHT = RNG.normal(size=(3, 5)).astype(np.float32)


def evaluated(ending, loss, targets, outputs=3):
    layer = cc.nn.Linear(5, outputs)
    layer.weight.data, layer.bias.data = cc.tensor(WEIGHT[:outputs]), cc.zeros(outputs)
    model = cc.Sequential(layer, *ending)
    model.compile(cc.optim.SGD(model.parameters(), lr=0.1), loss, ["accuracy"])
    return model.evaluate(X, targets)


@pytest.mark.parametrize("dim", [1, -1])
@pytest.mark.parametrize("loss", ["categorical_crossentropy", "sparse_categorical_crossentropy", "cross_entropy"])
def test_softmax(loss, dim):
    targets = np.eye(3, dtype=np.float32)[CLASSES] if loss == "categorical_crossentropy" else CLASSES
    with pytest.warns(UserWarning, match="ends with Softmax, but the loss takes logits"):
        found = evaluated([cc.nn.Softmax(dim)], loss, targets)
    logits = torch.tensor(X) @ torch.tensor(WEIGHT).T
    expected = torch.nn.functional.nll_loss(logits.softmax(1).log(), torch.tensor(CLASSES))
    np.testing.assert_allclose(found[0], expected.item(), rtol=1e-5)
    assert found[1] == (logits.argmax(1).numpy() == CLASSES).mean()


def test_sigmoid():
    targets = (CLASSES > 0).astype(np.float32)
    with pytest.warns(UserWarning, match="ends with Sigmoid, but the loss takes logits"):
        found = evaluated([cc.nn.Sigmoid()], "binary_crossentropy", targets, 1)
    scores = (torch.tensor(X) @ torch.tensor(WEIGHT[:1]).T)[:, 0]
    expected = torch.nn.functional.binary_cross_entropy(scores.sigmoid(), torch.tensor(targets))
    np.testing.assert_allclose(found[0], expected.item(), rtol=1e-5)
    assert found[1] == ((scores > 0).numpy() == targets).mean()


def test_a_loss_that_was_made_elsewhere_gets_what_the_model_gives():
    with pytest.warns(UserWarning, match="it is applied twice"):
        found = evaluated([cc.nn.Softmax(1)], cc.nn.CrossEntropyLoss(), CLASSES)
    chances = (torch.tensor(X) @ torch.tensor(WEIGHT).T).softmax(1)
    np.testing.assert_allclose(
        found[0], torch.nn.functional.cross_entropy(chances, torch.tensor(CLASSES)).item(), rtol=1e-5
    )

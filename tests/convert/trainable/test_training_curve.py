"""Training: the losses of finetuning BERT are those of torch, step by step."""

import candle_convert as cc
import numpy as np
import torch
from candle_convert.optim.optimizers.adam import AdamW
from candle_convert.tests.builders.class_models import reference

STEPS, BATCH, LENGTH = 20, 8, 12


def batches():
    """Two batches by turns."""
    random = np.random.RandomState(5)
    made = [(random.randint(3, 99, (BATCH, LENGTH)), random.randint(0, 2, BATCH)) for _ in range(2)]
    return [made[step % 2] for step in range(STEPS)]


def test_losses_are_those_of_torch(tmp_path):
    theirs = reference("BertForSequenceClassification", tmp_path).train()
    ours = cc.models.BertForSequenceClassification.from_pretrained(tmp_path).train()
    mine, other = AdamW(ours.parameters(), lr=2e-3), torch.optim.AdamW(theirs.parameters(), lr=2e-3)
    found, expected = [], []
    for ids, labels in batches():
        mine.zero_grad()
        loss = ours(ids, labels=labels).loss
        loss.backward()
        mine.step()
        found.append(loss.item())
        other.zero_grad()
        loss = theirs(input_ids=torch.tensor(ids), labels=torch.tensor(labels)).loss
        loss.backward()
        other.step()
        expected.append(loss.item())
    np.testing.assert_allclose(found, expected, rtol=2e-4)
    assert expected[-1] < 0.5 * expected[0]

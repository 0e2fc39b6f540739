"""The examples of training: their losses are torch's, and they learn."""

import importlib.util

import candle_convert as cc
import numpy as np
import torch
from candle_convert.tests.builders.paths import EXAMPLES


def example(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_character_gpt_follows_torchs_curve():
    gpt = example("train_character_gpt")
    text = gpt.text()
    vocabulary = cc.data.Vocabulary(text)
    rows = cc.data.TokenDataset(vocabulary.encode(text[:20000]), gpt.LENGTH)
    batches = [[each.numpy() for each in rows.batch(range(8 * n, 8 * n + 8))] for n in range(15)]
    torch.manual_seed(0)
    theirs = gpt.network(torch, len(vocabulary), 32, layers=1)
    optimizer = torch.optim.AdamW(theirs.parameters(), lr=1e-2)

    class Small(gpt.Writer):
        def __init__(self):
            super().__init__(len(vocabulary), lr=1e-2)
            self.net = gpt.network(cc, len(vocabulary), 32, layers=1)

        def on_train_batch_end(self, outputs, batch, batch_idx):
            found.append(outputs.item())

    module, expected, found = Small(), [], []
    module.net.load_state_dict({name: each.numpy() for name, each in theirs.state_dict().items()})
    for given, following in batches:
        logits = theirs(torch.from_numpy(given))
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), torch.from_numpy(following).flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        expected.append(loss.item())
    quiet = {"enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = cc.Trainer(max_epochs=1, logger=False, jit=False, **quiet)
    trainer.fit(module, batches)
    np.testing.assert_allclose(found, expected, rtol=1e-3)
    assert expected[-1] < 0.9 * expected[0]
    assert len(module.written(vocabulary, "The ", 5)) == 9


def test_a_small_cnn_learns_digits():
    """20 epochs of the example end above 99 %."""
    _, history = example("train_digits").trained(epochs=3, verbose=0)
    assert history.history["val_accuracy"][-1] > 0.96

"""The examples of training: their losses are torch's, and they learn."""

import importlib.util
import subprocess
import sys

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


def test_the_models_of_the_digits_script_follow_torchs_losses(tmp_path):
    mnist = example("train_mnist")
    images, labels, *_ = mnist.digits()
    for name, (kind, rate) in mnist.MODELS.items():
        variables = cc.nn.VarMap()
        ours = kind(cc.nn.VarBuilder.from_varmap(variables)).eval()
        theirs = {key: torch.tensor(each.detach().numpy(), requires_grad=True) for key, each in variables.items()}
        optimizer, other = cc.optim.SGD(variables.all_vars(), lr=rate), torch.optim.SGD(theirs.values(), lr=rate)
        for start in range(0, 20 * 32, 32):
            x, y = (torch.from_numpy(each[start : start + 32].numpy()) for each in (images, labels))
            loss, expected = mnist.loss_of(ours, cc.from_numpy(x.numpy()), cc.from_numpy(y.numpy())), None
            expected = torch.nn.functional.cross_entropy(DIGITS[name](theirs, x), y)
            for one, two in ((optimizer, loss), (other, expected)):
                one.zero_grad()
                two.backward()
                one.step()
            np.testing.assert_allclose(loss.item(), expected.item(), rtol=1e-4)
    (_, accuracy), *_ = mnist.train("mlp", 1, save=tmp_path / "mlp.safetensors")
    assert accuracy > 0.7
    assert mnist.train("mlp", 1, load=tmp_path / "mlp.safetensors")[0][1] > accuracy


def _linear(p, name, x):
    return torch.nn.functional.linear(x, p[f"{name}.weight"], p[f"{name}.bias"])


def _cnn(p, x):
    x = x.reshape(-1, 1, 8, 8)
    for name in ("conv1", "conv2"):
        x = torch.nn.functional.conv2d(x, p[f"{name}.weight"], p[f"{name}.bias"], padding=1).relu()
        x = torch.nn.functional.max_pool2d(x, 2)
    return _linear(p, "fc2", _linear(p, "fc1", x.flatten(1)).relu())


DIGITS = {
    "linear": lambda p, x: _linear(p, "linear", x),
    "mlp": lambda p, x: _linear(p, "fc2", _linear(p, "fc1", x).relu()),
    "cnn": _cnn,
}
"""The models of the script by torch's functions of its variables."""


def test_the_character_lstm_follows_torchs_losses():
    rnn = example("train_char_rnn")
    text = rnn.documentation()[:4000]
    characters, model, variables = rnn.network(text)
    tokens = np.array([characters.index(character) for character in text])
    count, width, hidden = len(characters), rnn.WIDTH, rnn.HIDDEN
    embedding, lstm = torch.nn.Embedding(count, width), torch.nn.LSTM(width, hidden, batch_first=True)
    head = torch.nn.Linear(hidden, count)
    for name, module in (("embedding", embedding), ("lstm", lstm), ("head", head)):
        module.load_state_dict(
            {key: torch.tensor(variables[f"{name}.{key}"].detach().numpy()) for key in module.state_dict()}
        )
    parameters = [*embedding.parameters(), *lstm.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=5e-3)
    cc.manual_seed(1)
    found = rnn.train(model, variables, cc.from_numpy(tokens), 6, batch=4, length=12)
    cc.manual_seed(1)
    for loss in found:
        starts = cc.randint(0, len(tokens) - 13, (4, 1)).numpy()
        rows = torch.from_numpy(tokens[starts + np.arange(13)])
        logits = head(lstm(embedding(rows[:, :-1]))[0])
        expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        expected.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        np.testing.assert_allclose(loss, expected.item(), rtol=1e-4)
    assert len(rnn.written(model, characters, text[:4], 5)) == 9


def test_the_character_lstm_names_the_letter_that_its_text_lacks(tmp_path):
    path = tmp_path / "text"
    path.write_text("no capitals, " * 20)
    words = [sys.executable, str(EXAMPLES / "train_char_rnn.py"), "1", "--text", str(path)]
    found = subprocess.run(words, capture_output=True, text=True, check=False)
    assert found.returncode == 2
    assert "does not have 'T' of 'The '" in found.stderr
    assert "Traceback" not in found.stderr

"""A model of another kind, an encoder and a decoder with a runner of its own, needs one new file and no edited one.

The file stands in a new folder of a copy of this package. NumPy and onnxruntime are the oracles.
"""

import json

import numpy as np
import onnx
import onnxruntime
import pytest
from candle_convert.tests.builders.package_copy import package_with, python
from safetensors.numpy import save_file

FAMILY = '''
"""Echo: an encoder, a decoder that attends to it, and a runner that decodes greedily."""

from __future__ import annotations

import numpy as np

from ...runtime.contract.architecture import Architecture, Key, Task, Weight
from ...runtime.session import Session
from ..layers.linear import embedding, linear
from ..layers.net import Net

KEYS = (Key("hidden", "hidden_size"), Key("vocab", "vocab_size"))
WEIGHTS = (
    Weight("embed.weight", "shared.weight", shape=("vocab", "hidden")),
    Weight("encoder.weight", "encoder.dense.weight", shape=("hidden", "hidden")),
    Weight("decoder.weight", "decoder.dense.weight", shape=("hidden", "hidden")),
)


def encode(graph, config, weights, *, fixed):
    """Hidden states [batch, source, hidden] of tokens [batch, source]."""
    net = Net(graph, config, weights)
    x = embedding(net, net.input("input_ids", "i64", ("batch", "source")), "embed")
    net.output("last_hidden_state", net.Tanh(linear(net, x, "encoder")))


def decode(graph, config, weights, *, fixed):
    """Logits [batch, target, vocab] of tokens [batch, target] that attend to hidden states."""
    net = Net(graph, config, weights)
    x = embedding(net, net.input("decoder_input_ids", "i64", ("batch", "target")), "embed")
    seen = net.input("encoder_hidden_states", "f32", ("batch", "source", config.hidden))
    scores = net.Softmax(net.MatMul(linear(net, x, "decoder"), net.Transpose(seen, perm=[0, 2, 1])), axis=-1)
    net.output("logits", linear(net, net.Add(x, net.MatMul(scores, seen)), "embed"))


class Translator:
    """Decodes greedily."""

    def __init__(self, graphs, options):
        self.encoder = Session(graphs["encoder"], threads=options.threads)
        self.decoder = Session(graphs["decoder"], threads=options.threads)
        self.hidden = options.config.hidden

    def translate(self, ids, steps):
        """Tokens [batch, steps] and their logits."""
        seen = self.encoder.run(None, {"input_ids": ids})[0]
        said = np.zeros((len(ids), 1), np.int64)
        for _ in range(steps):
            logits = self.decoder.run(None, {"decoder_input_ids": said, "encoder_hidden_states": seen})[0]
            said = np.concatenate([said, logits[:, -1:].argmax(-1)], axis=1)
        return said[:, 1:], logits


TASK = Task("translation", {"encoder": encode, "decoder": decode}, Translator, aliases=("mt",))
ARCHITECTURES = (Architecture("echo", "Echo", ("echo",), (), KEYS, WEIGHTS, (TASK,)),)
'''.lstrip()
SCRIPT = """
import json, sys
import numpy as np
import candle_convert as cc
from candle_convert import models
from candle_convert.convert.load.bind import build_graph, bind_model
from candle_convert.runtime.execute.shape_warmup import ShapeWarmup

ShapeWarmup.compile_later = ShapeWarmup.imminent_kernels = lambda *arguments: []  # compiles what is run
model = bind_model(cc.open("checkpoint"))
graphs = model.graphs()
shared = graphs["encoder"].weights["embed.weight"] is graphs["decoder"].weights["embed.weight"]
loaded = models.load("checkpoint", threads=1, task="mt")
tokens, logits = models.load("checkpoint", threads=1).translate(np.load("ids.npy"), 4)
np.savez("found.npz", tokens=tokens, logits=logits)
codes = []
for refused in (
    lambda: models.load("checkpoint", task="lm"),
    lambda: cc.convert("checkpoint", "one.onnx"),
    lambda: cc.convert("checkpoint", "one.gguf"),
    lambda: build_graph(model),
):
    try:
        refused()
    except cc.Error as error:
        codes.append((error.code, str(error)))
report = cc.convert("checkpoint", "exported", to="onnx")
halved = cc.convert("checkpoint", "halved", to="onnx", dtype="f16")
told = {"file": cc.__file__, "graphs": list(graphs), "shared": shared, "hidden": loaded.hidden, "codes": codes,
        "tensors": report.tensors, "verified": report.verified}
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def weights():
    rng = np.random.default_rng(0)
    shapes = {"shared": (23, 16), "encoder.dense": (16, 16), "decoder.dense": (16, 16)}
    return {f"{name}.weight": rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


@pytest.fixture(scope="module")
def made(tmp_path_factory, weights):
    """The folder in which the model was loaded, run and exported, and what the script said."""
    folder = tmp_path_factory.mktemp("kind")
    package_with(folder, "models/multimodal/echo.py", FAMILY)
    (folder / "checkpoint").mkdir()
    save_file(weights, folder / "checkpoint/model.safetensors")
    config = {"model_type": "echo", "hidden_size": 16, "vocab_size": 23}
    (folder / "checkpoint/config.json").write_text(json.dumps(config))
    np.save(folder / "ids.npy", np.random.default_rng(1).integers(1, 23, (2, 7)))
    return folder, json.loads(python(folder, "-c", SCRIPT))


def softmax(x):
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def computed(weights, ids, steps):
    """The model in NumPy."""
    embed, said = weights["shared.weight"], np.zeros((len(ids), 1), np.int64)
    seen = np.tanh(embed[ids] @ weights["encoder.dense.weight"].T)
    for _ in range(steps):
        x = embed[said]
        scores = softmax(x @ weights["decoder.dense.weight"].T @ seen.transpose(0, 2, 1))
        logits = (x + scores @ seen) @ embed.T
        said = np.concatenate([said, logits[:, -1:].argmax(-1)], axis=1)
    return said[:, 1:], logits


def exported(folder, ids, steps):
    """The model in onnxruntime, from its two files."""
    sessions = [
        onnxruntime.InferenceSession(str(folder / f"{name}_model.onnx"), providers=["CPUExecutionProvider"])
        for name in ("encoder", "decoder")
    ]
    encoder, decoder = sessions
    seen, said = encoder.run(None, {"input_ids": ids})[0], np.zeros((len(ids), 1), np.int64)
    for _ in range(steps):
        logits = decoder.run(None, {"decoder_input_ids": said, "encoder_hidden_states": seen})[0]
        said = np.concatenate([said, logits[:, -1:].argmax(-1)], axis=1)
    return said[:, 1:], logits


def test_it_is_found_bound_and_run_as_numpy_computes_it(made, weights):
    folder, told = made
    assert told["file"] == str(folder / "candle_convert/__init__.py")
    assert (told["graphs"], told["shared"], told["hidden"]) == (["encoder", "decoder"], True, 16)
    found = np.load(folder / "found.npz")
    tokens, logits = computed(weights, np.load(folder / "ids.npy"), 4)
    assert (found["tokens"] == tokens).all()
    assert np.abs(found["logits"] - logits).max() <= 1e-5 * np.abs(logits).max()


@pytest.mark.parametrize(("where", "tolerance"), [("exported", 1e-5), ("halved", 2e-2)])
def test_its_two_onnx_files_compute_the_same(made, weights, where, tolerance):
    folder, told = made
    names = sorted(path.name for path in (folder / where).iterdir())
    assert names == ["config.json", "decoder_model.onnx", "encoder_model.onnx"]
    for name in names[1:]:
        onnx.checker.check_model(str(folder / where / name), full_check=True)
    tokens, logits = exported(folder / where, np.load(folder / "ids.npy"), 4)
    want = computed(weights, np.load(folder / "ids.npy"), 4)
    assert np.abs(logits - want[1]).max() <= tolerance * np.abs(want[1]).max()
    assert (tokens == want[0]).all()
    assert told["tensors"] == told["verified"] >= 4


def test_what_it_does_not_do_is_refused(made):
    _, told = made
    assert [code for code, _ in told["codes"]] == ["E-ARCH-TASK", "E-OUT-GRAPHS", "E-OUT-ARCH", "E-ARCH-GRAPHS"]
    for (_, why), names in zip(
        told["codes"], ("translation", "encoder, decoder", "Echo", "encoder, decoder"), strict=True
    ):
        assert names in why


def test_commands_list_and_show_it(made):
    folder, _ = made
    rows = json.loads(python(folder, "-m", "candle_convert.convert", "models", "list", "echo", "--json"))["models"]
    assert [(row["name"], row["family"]) for row in rows] == [("echo", "models/multimodal/echo.py")]
    told = json.loads(python(folder, "-m", "candle_convert.convert", "models", "show", "checkpoint", "--json"))
    assert told["whole"]
    assert told["model"]["tasks"] == [{"name": "translation", "graphs": ["encoder", "decoder"]}]

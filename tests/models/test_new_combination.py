"""A model made of a tower, a projector and a language model of existing families needs one new file and no edited one.

The file stands in a new folder of a copy of this package. transformers' modules and onnxruntime are the oracles.
"""

import json

import numpy as np
import onnxruntime
import pytest
import torch
from candle_convert.tests.builders.image_checkpoints import image_model, images, saved
from candle_convert.tests.builders.package_copy import package_with, python
from safetensors.numpy import load_file, save_file

FAMILY = '''
"""Looking glass: an image encoder and a language model, whatever the file states, with a linear layer between them."""

from __future__ import annotations

from ...runtime.contract.architecture import FEATURE_EXTRACTION, Architecture, Below, Part, Task, Weight
from ...runtime.contract.part_graph import add_part
from ...runtime.session import Session
from ..generation.decoder_tasks import EMBED_TOKENS, FROM_EMBEDS
from ..layers.linear import linear
from ..layers.net import Net
from ..schema.language_part import LANGUAGE_MODEL

TOWER, TEXT = "vision", "text"
WEIGHTS = (
    Weight("projector.weight", ("model.projector.weight", "projector.weight"), "projector.weight",
           shape=("text.hidden", "vision.hidden")),
)


def vision_encoder(graph, config, weights, *, fixed):
    """``image_features`` [batch, tokens, hidden of the text] of ``pixel_values``."""
    net = Net(graph, config, weights)
    tokens = add_part(graph, config, weights, TOWER, task=FEATURE_EXTRACTION)["last_hidden_state"]
    net.output("image_features", linear(net, tokens, "projector"))


def embed_tokens(graph, config, weights, *, fixed):
    """``inputs_embeds`` of ``input_ids``."""
    found = add_part(graph, config, weights, TEXT, which=EMBED_TOKENS)
    Net(graph, config, weights).output("inputs_embeds", found["inputs_embeds"])


def decoder(graph, config, weights, *, fixed):
    """Logits and caches of ``inputs_embeds``."""
    net = Net(graph, config, weights)
    for name, value in add_part(graph, config, weights, TEXT, which=FROM_EMBEDS, fixed=fixed).items():
        net.output(name, value)


class Looker:
    """Runs the graphs."""

    def __init__(self, graphs, options):
        self.graphs, self.config = graphs, options.config
        self.sessions = {name: Session(graph, threads=1) for name, graph in graphs.items()}


GRAPHS = {"vision_encoder": vision_encoder, "embed_tokens": embed_tokens, "decoder": decoder}
ARCHITECTURES = (
    Architecture(
        "looking_glass",
        "Looking glass",
        ("looking_glass",),
        ("looking_glass",),
        (),
        WEIGHTS,
        (Task("image-text-to-text", GRAPHS, Looker),),
        parts={
            TOWER: Part(None, "vision_config", (Below("model.vision_tower."), Below("vision_tower."))),
            TEXT: LANGUAGE_MODEL,
        },
    ),
)
'''.lstrip()
SCRIPT = """
import json, sys
import numpy as np
import candle_convert as cc
from candle_convert import models
from candle_convert.convert.load.bind import build_graph, bind_model
from candle_convert.runtime.execute.shape_warmup import ShapeWarmup
from candle_convert.runtime.session import Session

ShapeWarmup.compile_later = ShapeWarmup.imminent_kernels = lambda *arguments: []  # compiles what is run
given = np.load("inputs.npz")
pixels, ids = given["pixels"], given["ids"]


def answer(path):
    model = bind_model(cc.open(path))
    run = {name: Session(build_graph(model, name, fixed=False), threads=1) for name in model.task.graphs}
    (seen,) = run["vision_encoder"].run(["image_features"], {"pixel_values": pixels})
    (read,) = run["embed_tokens"].run(["inputs_embeds"], {"input_ids": ids})
    return logits(run["decoder"], "inputs_embeds", np.concatenate([seen, read], axis=1)), seen, model


def logits(session, name, tokens):
    batch, length = tokens.shape[:2]
    feeds = {name: tokens, "attention_mask": np.ones((batch, length), np.int64),
             "position_ids": np.tile(np.arange(length), (batch, 1))}
    for value in session.graph.inputs:
        if value.name.startswith("past"):
            shape = [batch, *(0 if isinstance(length, str) else length for length in value.shape[1:])]
            feeds[value.name] = np.zeros(shape, np.float32)
    return session.run(["logits"], feeds)[0]


found, told = {}, {}
for layout in sys.argv[1:]:
    found[f"{layout}/logits"], found[f"{layout}/features"], model = answer(layout)
    cc.convert(layout, f"{layout}.gguf")
    found[f"{layout}/gguf"], _, again = answer(f"{layout}.gguf")
    cc.convert(f"{layout}.gguf", f"{layout}-back", to="safetensors")
    told[layout] = {"graphs": list(models.load(layout).graphs), "types": [part.architecture.name for part in
                    model.architecture.parts.values()], "config": json.load(open(f"{layout}-back/config.json")),
                    "names": sorted(cc.open(f"{layout}-back").weights)}
cc.convert(sys.argv[1], "exported", to="onnx")
found["text"] = logits(Session(build_graph(model.part("text"), fixed=False), threads=1), "input_ids", ids)
np.savez("found.npz", **found)
print(json.dumps({"file": cc.__file__, **told}))
"""
VIT = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48, "image_size": 16,
    "patch_size": 8,
}  # fmt: skip
TEXT = {
    "vocab_size": 96, "hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 64,
}  # fmt: skip
LAYOUTS = {
    "new": ("model.vision_tower.", "model.language_model.", "lm_head.", "model.projector."),
    "old": ("vision_tower.", "language_model.model.", "language_model.lm_head.", "projector."),
}
"""By version of transformers: how names of the tower, the language model, its head and the projector begin."""
TOLERANCE = 3e-5


@pytest.fixture(scope="module")
def parts():
    """The tower, the projector and the language model."""
    torch.manual_seed(0)
    return image_model("ViTModel", **VIT), torch.nn.Linear(32, 48, bias=False), image_model("LlamaForCausalLM", **TEXT)


@pytest.fixture(scope="module")
def made(parts, tmp_path_factory):
    """The folder in which the models were loaded and converted, and what the script said."""
    folder = tmp_path_factory.mktemp("combination")
    package_with(folder, "models/multimodal/looking_glass.py", FAMILY)
    tower, projector, text = parts
    seen = load_file(saved(tower, folder / "tower") / "model.safetensors")
    read = load_file(saved(text, folder / "text") / "model.safetensors")
    for layout, (vision, language, head, between) in LAYOUTS.items():
        (folder / layout).mkdir()
        weights = {vision + name: value for name, value in seen.items()}
        weights[f"{between}weight"] = projector.weight.detach().numpy()
        for name, value in read.items():
            outer = name.replace("lm_head.", head) if name.startswith("lm_head.") else name.replace("model.", language)
            weights[outer] = value
        save_file(weights, folder / layout / "model.safetensors")
        config = {
            "model_type": "looking_glass",
            "vision_config": {"model_type": "vit", **VIT},
            "text_config": {"model_type": "llama", "rms_norm_eps": 1e-6, **TEXT},
        }
        (folder / layout / "config.json").write_text(json.dumps(config))
    np.savez(folder / "inputs.npz", pixels=images(2, 16, 16), ids=np.random.default_rng(1).integers(3, 96, (2, 7)))
    return folder, json.loads(python(folder, "-c", SCRIPT, *LAYOUTS))


@pytest.fixture(scope="module")
def expected(parts, made):
    """Features of the pictures, and logits behind them."""
    tower, projector, text = parts
    given = np.load(made[0] / "inputs.npz")
    with torch.no_grad():
        seen = projector(tower(torch.from_numpy(given["pixels"])).last_hidden_state)
        read = text.get_input_embeddings()(torch.from_numpy(given["ids"]))
        logits = text(inputs_embeds=torch.cat([seen, read], dim=1)).logits
    return seen.numpy(), logits.numpy()


def test_a_part_is_a_model_of_its_own(parts, made):
    found = np.load(made[0] / "found.npz")["text"]
    with torch.no_grad():
        want = parts[2](torch.from_numpy(np.load(made[0] / "inputs.npz")["ids"])).logits.numpy()
    assert np.abs(found - want).max() <= TOLERANCE * np.abs(want).max()


def test_the_copy_of_the_package_ran(made):
    folder, told = made
    assert told["file"].startswith(str(folder))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_part_is_bound_by_its_own_architecture(layout, made, expected):
    folder, told = made
    found = np.load(folder / "found.npz")
    assert told[layout]["types"] == ["vit", "llama"]
    assert told[layout]["graphs"] == ["vision_encoder", "embed_tokens", "decoder"]
    for name, want in zip(("features", "logits"), expected, strict=True):
        assert np.abs(found[f"{layout}/{name}"] - want).max() <= TOLERANCE * np.abs(want).max()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_through_gguf_and_back(layout, made, expected):
    folder, told = made
    found = np.load(folder / "found.npz")[f"{layout}/gguf"]
    assert np.abs(found - expected[1]).max() <= TOLERANCE * np.abs(expected[1]).max()
    config = told[layout]["config"]
    assert {key: config["text_config"][key] for key in TEXT} == TEXT
    assert (config["text_config"]["model_type"], config["vision_config"]["model_type"]) == ("llama", "vit")
    vision, language, head, between = LAYOUTS["new"]
    assert all(name.startswith((vision, language, head, between)) for name in told[layout]["names"])


def test_graphs_run_in_onnxruntime(made, expected):
    folder, _ = made
    given = np.load(folder / "inputs.npz")
    session = onnxruntime.InferenceSession(folder / "exported" / "vision_encoder.onnx")
    (seen,) = session.run(["image_features"], {"pixel_values": given["pixels"]})
    assert np.abs(seen - expected[0]).max() <= TOLERANCE * np.abs(expected[0]).max()

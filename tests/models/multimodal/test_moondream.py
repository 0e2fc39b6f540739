"""Moondream against its encoder in torch and Phi of transformers: logits, generated tokens, formats and bad input."""

import json
import shutil

import candle_convert as cc
import numpy as np
import onnxruntime
import pytest
import torch
from candle_convert.convert.cli.main import run
from candle_convert.runtime.contract.weight_binding import find_architecture
from candle_convert.tests.builders.moondream import END, greedy, logits, moondream_folder, prepared, tokenizer
from candle_convert.tests.oracles.transformers_js import answered, needs_node
from PIL import Image
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer

TOLERANCE = 3e-5
PATCHES = 9
QUESTION = "what is this?"
ASKED = f"\n\nQuestion: {QUESTION}\n\nAnswer:"
GREEDY = {"max_tokens": 8, "temperature": 0}


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    """The encoder, the language model, and their directory."""
    folder = tmp_path_factory.mktemp("moondream")
    return *moondream_folder(folder), folder


@pytest.fixture(scope="module")
def loaded(case):
    return cc.models.load(case[2], threads=1, activations="f32")


def ids_of(text):
    return tokenizer().encode(text).ids


def near(found, want):
    return np.abs(found - np.asarray(want)).max() <= TOLERANCE * np.abs(np.asarray(want)).max()


def test_logits(case, loaded):
    encoder, phi, folder = case
    pixels, after = prepared(folder / "a.png"), ids_of("a cat")
    found = loaded([[0, *[-1] * PATCHES, *after]], pixel_values=pixels.numpy())["logits"]
    assert near(found, logits(encoder, phi, [0], pixels, after))


def test_features(case):
    encoder, _, folder = case
    pixels = torch.cat(
        [prepared(folder / "a.png"), torch.randn(1, 3, 42, 42, generator=torch.Generator().manual_seed(0))]
    )
    found = cc.models.load(folder, task="image-feature-extraction", threads=1)(pixels.numpy())
    with torch.no_grad():
        hidden, features = encoder(pixels)
    assert near(found["last_hidden_state"], hidden)
    assert near(found["image_features"], features)


def test_the_prompt_of_a_question(case, loaded):
    prompt = loaded.prompted(QUESTION, [case[2] / "a.png"])
    assert prompt.ids == [0, *[-1] * PATCHES, *ids_of(ASKED)]
    assert np.abs(prompt.arrays["pixel_values"] - prepared(case[2] / "a.png").numpy()).max() <= 1e-6
    assert loaded.prompted(QUESTION).ids == [0, *ids_of(QUESTION)]


@pytest.mark.parametrize(("before", "after"), [("", ASKED), ("a cat", " and two dogs")])
def test_generated_tokens(case, loaded, before, after):
    encoder, phi, folder = case
    text = QUESTION if after is ASKED else f"{before}<image>{after}"
    ids = [0, *ids_of(before)], prepared(folder / "a.png"), ids_of(after)
    (made,) = loaded.generate_batch([text], images=[[folder / "a.png"]], **GREEDY)
    assert made.tokens == greedy(encoder, phi, *ids, 8)
    assert loaded.generate(text, images=[folder / "a.png"], **GREEDY) == made.text


def test_the_repeat_penalty_leaves_features_out(case, loaded):
    """llama.cpp divides positive logits of the tokens of the prompt, and multiplies negative ones."""
    encoder, phi, folder = case
    seen = [0, *ids_of(ASKED)]
    last = logits(encoder, phi, [0], prepared(folder / "a.png"), ids_of(ASKED))[0, -1]
    last[seen] = torch.where(last[seen] > 0, last[seen] / 5, last[seen] * 5)
    (made,) = loaded.generate_batch(
        [QUESTION], images=[[folder / "a.png"]], max_tokens=1, temperature=0, repeat_penalty=5.0, repeat_last=-1
    )
    assert made.tokens == [int(last.argmax())]


def test_generate_command(case, loaded, capsys):
    folder = case[2]
    command = ["generate", str(folder), "-p", QUESTION, "--image", str(folder / "a.png"), "-n", "8", "--temp", "0"]
    assert run([*command, "--activations", "f32", "--json"]) == 0
    want = loaded.generate(QUESTION, images=[folder / "a.png"], **GREEDY)
    assert json.loads(capsys.readouterr().out)["text"] == want


def test_a_written_directory_has_the_same_weights(case, loaded, tmp_path):
    cc.convert(case[2], tmp_path / "copy", to="safetensors")
    want, found = (load_file(folder / "model.safetensors") for folder in (case[2], tmp_path / "copy"))
    assert found.keys() == want.keys()
    assert all(np.array_equal(found[name], array) for name, array in want.items())
    copy = cc.models.load(tmp_path / "copy", threads=1, activations="f32")
    options = GREEDY | {"images": [case[2] / "a.png"]}
    assert copy.generate(QUESTION, **options) == loaded.generate(QUESTION, **options)


def test_exported_graphs(case, loaded, tmp_path):
    encoder, _, folder = case
    cc.convert(folder, tmp_path / "onnx", to="onnx")
    pixels = prepared(folder / "a.png")
    path = tmp_path / "onnx" / "vision_encoder.onnx"
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    with torch.no_grad():
        want = encoder(pixels)[1]
    assert near(session.run(["image_features"], {"pixel_values": pixels.numpy()})[0], want)
    again = cc.models.load(tmp_path / "onnx", threads=1, activations="f32")
    images = [folder / "a.png"]
    assert again.generate(QUESTION, images=images, **GREEDY) == loaded.generate(QUESTION, images=images, **GREEDY)


def test_sizes_that_files_leave_out():
    """The published config.json states only the kind of the language model."""
    source = {"model_type": "moondream1", "phi_config": {"model_type": "phi-msft"}}
    values = find_architecture("hf", source).config("hf", source).values
    assert (values["text.hidden"], values["text.layers"], values["text.heads"], values["text.rotary"]) == (
        2048,
        24,
        32,
        32,
    )
    assert (values["text.vocab"], values["text.intermediate"], values["projection"]) == (51200, 8192, 8192)


def test_bad_prompts(case, loaded):
    picture = case[2] / "a.png"
    with pytest.raises(cc.UsageError, match=r"E-LM-MODALITY.*takes one picture, but the prompt has 2 pictures"):
        loaded.generate(QUESTION, images=[picture, picture])
    with pytest.raises(
        cc.UsageError, match=r"E-LM-PLACEHOLDER.*1 picture placeholder <image> in the prompt for no pic"
    ):
        loaded.generate("<image> a cat")
    with pytest.raises(
        cc.UsageError, match=r"E-LM-PLACEHOLDER.*2 picture placeholders <image> in the prompt for 1 pic"
    ):
        loaded.generate("<image> a cat <image>", images=[picture])
    with pytest.raises(cc.UsageError, match=r"E-LM-MODALITY.*takes no audio"):
        loaded.generate(QUESTION, audio=[picture])
    with pytest.raises(cc.UsageError, match=r"E-LM-PLACEHOLDER.*no picture"):
        loaded([[0, -1, -1, 5]])
    with pytest.raises(cc.UsageError, match=r"E-LM-PLACEHOLDER.*2 placeholders .* 9 rows of features"):
        loaded([[0, -1, -1, 5]], pixel_values=prepared(picture).numpy())


def changed(folder, target, name, change):
    """A copy of the model with one changed weight."""
    shutil.copytree(folder, target)
    arrays = load_file(target / "model.safetensors")
    save_file({**arrays, name: change(arrays[name])}, target / "model.safetensors")
    return target


@pytest.mark.parametrize(
    ("name", "change", "why"),
    [
        ("projection.mlp.fc1.weight", lambda x: np.concatenate([x, x], 1), r"projection\.mlp\.fc1\.weight"),
        ("encoder.model.visual.pos_embed", lambda x: x[:, 1:].copy(), "8 position embeddings do not fit 3 x 3"),
        ("encoder.model.visual.patch_embed.linear.weight", lambda x: x[:, 1:].copy(), "does not fit patches of 14"),
    ],
)  # fmt: skip
def test_weights_that_do_not_fit(case, tmp_path, name, change, why):
    folder = changed(case[2], tmp_path / "model", f"vision_encoder.{name}", change)
    with pytest.raises(cc.FormatError, match=why):
        cc.models.load(folder)


ANSWER = """
  const image = await js.RawImage.read(given.picture);
  const processor = await js.AutoProcessor.from_pretrained('model');
  const tokenizer = await js.AutoTokenizer.from_pretrained('model');
  const model = await js.AutoModelForImageTextToText.from_pretrained('model', { dtype: given.dtype });
  const inputs = { ...(await processor(image)), ...tokenizer(given.text) };
  const made = await model.generate({ ...inputs, max_new_tokens: 6, do_sample: false });
  return { ids: plain(inputs.input_ids), pixels: plain(inputs.pixel_values), tokens: plain(made) };
"""


@needs_node
@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
def test_transformers_js(dtype, tmp_path):
    """A placeholder for each row of features is in the text; BOS is written, too."""
    folder = tmp_path / "source"
    folder.mkdir()
    encoder, phi = moondream_folder(folder, spare=8)
    Image.fromarray(np.random.default_rng(1).integers(0, 256, (42, 42, 3), np.uint8)).save(tmp_path / "c.png")
    cc.convert(folder, tmp_path / "model", to="onnx", dtypes=({"fp32": "f32", "fp16": "f16"}[dtype],))
    text = f"{END}{'<image>' * 9}{ASKED}"
    found = answered(ANSWER, tmp_path, picture=str(tmp_path / "c.png"), text=text, dtype=dtype)
    token = json.loads((tmp_path / "model" / "config.json").read_text())["image_token_index"]
    assert found["ids"]["data"] == [0, *[token] * 9, *ids_of(ASKED)]
    pixels = torch.tensor(found["pixels"]["data"]).reshape(found["pixels"]["dims"])
    assert (pixels - prepared(tmp_path / "c.png")).abs().max() <= 2 / 255
    want = greedy(encoder, phi, [0], prepared(tmp_path / "c.png"), ids_of(ASKED), 6)
    assert found["tokens"]["data"][len(found["ids"]["data"]) :] == want


def test_an_export_names_a_placeholder(tmp_path):
    """An id without a token of the model's own; a note where no id is left. The folder is the same model."""
    source = tmp_path / "source"
    source.mkdir()
    moondream_folder(source, spare=8)
    count = tokenizer().get_vocab_size()
    report = cc.convert(source, tmp_path / "onnx", to="onnx")
    assert not [note for note in report.notes if note.code == "W-ONNX-TRANSFORMERS-JS"]
    assert json.loads((tmp_path / "onnx" / "config.json").read_text())["image_token_index"] == count
    assert Tokenizer.from_file(str(tmp_path / "onnx" / "tokenizer.json")).token_to_id("<image>") == count
    options = {"images": [source / "a.png"], **GREEDY}
    want = cc.models.load(source, threads=1, activations="f32").generate(QUESTION, **options)
    assert cc.models.load(tmp_path / "onnx", threads=1, activations="f32").generate(QUESTION, **options) == want
    (tmp_path / "full").mkdir()
    moondream_folder(tmp_path / "full")
    report = cc.convert(tmp_path / "full", tmp_path / "other", to="onnx")
    assert [note.message for note in report.notes if note.code == "W-ONNX-TRANSFORMERS-JS"] == [
        f"Transformers.js has no token for pictures: <image> has no id among the model's {count} ids"
    ]


def exported(tmp_path, change):
    """The folder of an export of a model with 8 unused ids and another tokenizer.json, and its notes on
    Transformers.js; `change` returns what the file holds, None for no file."""
    source = tmp_path / "source"
    source.mkdir()
    moondream_folder(source, spare=8)
    path = source / "tokenizer.json"
    changed_tokens = change(json.loads(path.read_text()))
    path.unlink() if changed_tokens is None else path.write_text(json.dumps(changed_tokens))
    report = cc.convert(source, tmp_path / "onnx", to="onnx")
    return tmp_path / "onnx", [note.message for note in report.notes if note.code == "W-ONNX-TRANSFORMERS-JS"]


def with_image(tokens, index):
    """A tokenizer.json with a token ``<image>`` of its own."""
    added = {**tokens["added_tokens"][0], "id": index, "content": "<image>"}
    return {**tokens, "added_tokens": [*tokens["added_tokens"], added]}


def in_vocabulary(tokens, index):
    tokens["model"]["vocab"]["<image>"] = index
    return tokens


@pytest.mark.parametrize(
    ("change", "offset"), [(lambda tokens, index: tokens, 0), (with_image, 0), (with_image, 1), (in_vocabulary, 0)]
)
def test_the_placeholder_is_one_token(change, offset, tmp_path):
    """Of the tokenizer's own id if it has one, as the tokenizers library reads it."""
    want = tokenizer().get_vocab_size() + offset
    folder, notes = exported(tmp_path, lambda tokens: change(tokens, want))
    written = json.loads((folder / "tokenizer.json").read_text())
    assert [token["id"] for token in written["added_tokens"] if token["content"] == "<image>"] == [want]
    assert json.loads((folder / "config.json").read_text())["image_token_index"] == want
    if not offset:  # the library numbers tokens itself
        assert Tokenizer.from_file(str(folder / "tokenizer.json")).encode("a<image>").ids[-1] == want
    assert not notes


MISSING, FULL = "tokenizer.json is missing or has no vocabulary of ids by token", "<image> has no id among the model's"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda tokens: None, MISSING),
        (lambda tokens: {**tokens, "model": {"type": "Unigram", "vocab": [["a", 0.0]], "unk_id": 0}}, MISSING),
        (lambda tokens: with_image(tokens, 1 << 40), FULL),
        (lambda tokens: with_image(tokens, -1), FULL),
        (lambda tokens: with_image(tokens, None), FULL),
        (lambda tokens: in_vocabulary(tokens, 1 << 40), FULL),
    ],
)
def test_why_an_export_has_no_placeholder(change, why, tmp_path):
    folder, notes = exported(tmp_path, change)
    assert len(notes) == 1
    assert notes[0].startswith(f"Transformers.js has no token for pictures: {why}")
    assert "image_token_index" not in json.loads((folder / "config.json").read_text())


@pytest.mark.parametrize("added", [None, 5, {}, [None, 5]])
def test_added_tokens_that_are_no_list_of_objects(added, tmp_path):
    folder, notes = exported(tmp_path, lambda tokens: {**tokens, "added_tokens": added})
    token = json.loads((folder / "config.json").read_text())["image_token_index"]
    assert Tokenizer.from_file(str(folder / "tokenizer.json")).token_to_id("<image>") == token
    assert not notes

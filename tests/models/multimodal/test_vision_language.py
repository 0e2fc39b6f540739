"""Vision-language models against transformers: processors, logits, generated tokens, chats and bad input."""

import base64
import json
import pathlib
import shutil

import candle_convert as cc
import numpy as np
import onnxruntime
import pytest
import torch
from candle_convert.convert.cli.main import run
from candle_convert.models.generation.conversation import Conversation
from candle_convert.models.generation.sampling import Sampling
from candle_convert.tests.builders.tiny_llama import written
from candle_convert.tests.builders.vision_language import FAMILIES, generated, vision_language_folder
from PIL import Image
from safetensors.numpy import save_file

TOLERANCE = 3e-5


@pytest.fixture(scope="module", params=FAMILIES)
def case(request, tmp_path_factory):
    """The name of a family, its model and processor in transformers, and its directory."""
    folder = tmp_path_factory.mktemp(request.param)
    model, processor = vision_language_folder(request.param, folder)
    return request.param, model, processor, folder


@pytest.fixture(scope="module")
def loaded(case):
    return cc.models.load(case[3], threads=1, activations="f32")


def pictures(folder, *letters):
    return [Image.open(folder / f"{letter}.png") for letter in letters]


def paths(folder, *letters):
    return [str(folder / f"{letter}.png") for letter in letters]


def processed(case, text, *letters):
    """transformers' arrays of a text with pictures."""
    _, _, processor, folder = case
    return processor(text=text, images=pictures(folder, *letters), return_tensors="pt")


def arrays_of(loaded, inputs):
    """Those of transformers' arrays that a model takes beside ids and mask."""
    return {name: np.asarray(array) for name, array in inputs.items() if name in loaded.rules.arrays}


def texts(case):
    marker = FAMILIES[case[0]][1]
    return [(f"{marker}what is this?", "a"), (f"a cat {marker} and {marker} a bird", "ab")]


@pytest.mark.parametrize("number", [0, 1])
def test_processor(case, loaded, number):
    text, letters = texts(case)[number]
    want = processed(case, text, *letters)
    found = loaded.prompted(text, paths(case[3], *letters))
    assert found.ids == want["input_ids"][0].tolist()
    pixels, expected = found.arrays["pixel_values"], want["pixel_values"].numpy()
    expected = expected.reshape(-1, *expected.shape[-3:])
    assert pixels.shape == expected.shape
    std = min(case[2].image_processor.image_std)
    assert np.abs(pixels - expected).max() * std <= 1 / 255
    if "image_sizes" in want:
        assert found.arrays["image_sizes"].tolist() == np.array(want["image_sizes"]).tolist()


@pytest.mark.parametrize("number", [0, 1])
def test_logits_and_generated_tokens(case, loaded, number):
    _, model, _, folder = case
    text, letters = texts(case)[number]
    inputs = processed(case, text, *letters)
    with torch.no_grad():
        want = model(**inputs).logits.numpy()
    found = loaded(input_ids=inputs["input_ids"].numpy(), **arrays_of(loaded, inputs))["logits"]
    assert np.abs(found - want).max() <= TOLERANCE * np.abs(want).max()
    tokens = generated(model, inputs, 8)
    (made,) = loaded.generate_batch([text], images=[paths(folder, *letters)], max_tokens=8, temperature=0)
    assert made.tokens == tokens


def test_a_batch_is_as_each_prompt_alone(case, loaded):
    (one, first), (two, both) = texts(case)
    prompts, images = [one, two, "two dogs"], [paths(case[3], *first), paths(case[3], *both), []]
    if case[0] == "paligemma":
        prompts, images = prompts[:2], images[:2]
    batch = loaded.generate_batch(prompts, images=images, max_tokens=6, temperature=0)
    for made, prompt, own in zip(batch, prompts, images, strict=True):
        assert made.text == loaded.generate(prompt, images=own, max_tokens=6, temperature=0)


def test_a_prompt_in_chunks(case, loaded, monkeypatch):
    """Long prompts are processed in several runs, except where tokens attend to later ones."""
    from candle_convert.models.generation import language_model

    text, letters = texts(case)[1]
    whole = loaded.generate(text, images=paths(case[3], *letters), max_tokens=6, temperature=0)
    monkeypatch.setattr(language_model, "chunk_length", lambda count, short: min(count, 7))
    assert loaded.generate(text, images=paths(case[3], *letters), max_tokens=6, temperature=0) == whole


def test_chat(case, loaded):
    _, _, processor, folder = case
    content = [{"type": "image", "image": str(folder / "a.png")}, {"type": "text", "text": "what is this?"}]
    plain = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "what is this?"}]}]
    text = processor.tokenizer.apply_chat_template(plain, tokenize=False, add_generation_prompt=True)
    want = loaded.generate(text, images=paths(folder, "a"), add_bos=False, max_tokens=6, temperature=0)
    assert loaded.chat([{"role": "user", "content": content}], max_tokens=6, temperature=0) == want


def test_a_conversation(case, loaded):
    """Turns that continue a cache answer as a chat that is read anew."""
    talk = Conversation(loaded, Sampling(temperature=0), max_tokens=5)
    messages = []
    for letter, text in (("a", "what is this?"), ("", "two dogs"), ("b", "describe the picture")):
        content = [{"type": "text", "text": text}]
        if letter:
            (path,) = paths(case[3], letter)
            talk.add_picture(path)
            content.insert(0, {"type": "image", "image": path})
        messages.append({"role": "user", "content": content})
        answer = "".join(talk.say(text))
        assert answer == loaded.chat(messages, max_tokens=5, temperature=0)
        messages.append({"role": "assistant", "content": answer})


def test_content_parts(case, loaded):
    (path,) = paths(case[3], "a")
    data = "data:image/png;base64," + base64.b64encode(pathlib.Path(path).read_bytes()).decode()
    question = {"type": "text", "text": "what is this?"}
    answers = {
        loaded.chat([{"role": "user", "content": [part, question]}], max_tokens=5, temperature=0)
        for part in (
            {"type": "image", "path": path}, {"type": "image_url", "image_url": {"url": data}},
            {"type": "image_url", "image_url": {"url": f"file://{path}"}}, {"type": "image", "image": Image.open(path)},
        )
    }  # fmt: skip
    assert len(answers) == 1
    for part, why in (
        ({"type": "video", "path": path}, "unknown content part"),
        ({"type": "image"}, "holds nothing"),
        ({"type": "image", "url": "https://example.com/a.png"}, "not fetched"),
        ({"type": "image_url", "image_url": {"url": "data:image/png;base64,a?"}}, "not valid base64"),
        ({"type": "audio", "path": path}, "takes no audio"),
    ):
        with pytest.raises(cc.UsageError, match=why):
            loaded.chat([{"role": "user", "content": [part, question]}])


def test_generate_command(case, loaded, capsys):
    folder = case[3]
    want = loaded.generate("what is this?", images=paths(folder, "a"), max_tokens=6, temperature=0)
    command = [
        "generate",
        str(folder),
        "-p",
        "what is this?",
        "--image",
        str(folder / "a.png"),
        "-n",
        "6",
        "--temp",
        "0",
    ]
    assert run([*command, "--activations", "f32", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["text"] == want


@pytest.mark.parametrize("options", [[], ["--chat"]])
def test_generate_command_without_a_picture(case, loaded, options, capsys):
    """The prompt is that of the processor: PaliGemma's has BOS before the text and a line break behind it."""
    folder, text = case[3], "what is this?"
    command = ["generate", str(folder), "-p", text, "-n", "6", "--temp", "0", *options, "--activations", "f32"]
    assert run([*command, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    asked = {"max_tokens": 6, "temperature": 0}
    want = loaded.chat([{"role": "user", "content": text}], **asked) if options else loaded.generate(text, **asked)
    assert found["text"] == want
    if case[0] == "paligemma" and not options:
        tokenizer = case[2].tokenizer
        assert found["prompt"] == tokenizer(f"{tokenizer.bos_token}{text}\n", add_special_tokens=False)["input_ids"]


def test_a_written_directory_is_the_same_model(case, loaded, tmp_path):
    text, letters = texts(case)[0]
    cc.convert(case[3], tmp_path / "copy", to="safetensors", dtype="f16")
    want = loaded.generate(text, images=paths(case[3], *letters), max_tokens=1, temperature=0)
    copy = cc.models.load(tmp_path / "copy", threads=1)
    assert copy.generate(text, images=paths(case[3], *letters), max_tokens=1, temperature=0) == want
    assert cc.open(tmp_path / "copy").weights.keys() == cc.open(case[3]).weights.keys()


def test_exported_graphs(case, loaded, tmp_path):
    """As Transformers.js loads them: onnxruntime runs each, and the folder is the same model."""
    cc.convert(case[3], tmp_path / "onnx", to="onnx")
    text, letters = texts(case)[1]
    inputs = processed(case, text, *letters)
    with torch.no_grad():
        want = case[1](**inputs).logits.numpy()
    run = {
        name: onnxruntime.InferenceSession(tmp_path / "onnx" / f"{name}.onnx", providers=["CPUExecutionProvider"])
        for name in ("vision_encoder", "embed_tokens", "decoder_model_merged")
    }
    ids, pixels = inputs["input_ids"].numpy(), inputs["pixel_values"].numpy()
    (embeds,) = run["embed_tokens"].run(["inputs_embeds"], {"input_ids": ids})
    if "image_sizes" in inputs:
        sizes = np.array(inputs["image_sizes"])
        tiles = [image[None, :, :height, :width] for image, (height, width) in zip(pixels, sizes, strict=True)]
    else:
        tiles = [pixels] if case[0] == "smolvlm" else list(pixels.reshape(-1, 1, *pixels.shape[-3:]))
    rows = [run["vision_encoder"].run(["image_features"], {"pixel_values": tile})[0] for tile in tiles]
    features = np.concatenate([row.reshape(-1, row.shape[-1]) for row in rows])
    embeds[ids == loaded.options.config.image_token] = features
    feeds = {"inputs_embeds": embeds, "attention_mask": loaded.embedded(ids, None, arrays_of(loaded, inputs)).mask}
    for value in run["decoder_model_merged"].get_inputs():
        if value.name.startswith("past"):
            feeds[value.name] = np.zeros([1, value.shape[1], 0, value.shape[3]], np.float32)
        elif value.name == "position_ids":
            feeds[value.name] = np.arange(ids.shape[1])[None]
    (found,) = run["decoder_model_merged"].run(["logits"], feeds)
    assert np.abs(found - want).max() <= TOLERANCE * np.abs(want).max()
    again = cc.models.load(tmp_path / "onnx", threads=1, activations="f32")
    options = {"images": paths(case[3], *letters), "max_tokens": 6, "temperature": 0}
    assert again.generate(text, **options) == loaded.generate(text, **options)


def test_numbers_of_pictures_and_placeholders(case, loaded):
    marker, folder = FAMILIES[case[0]][1], case[3]
    for text, letters in ((f"{marker} this", ""), (f"{marker} {marker} this", "a"), (f"{marker} this", "ab")):
        with pytest.raises(cc.UsageError, match=r"E-LM-PLACEHOLDER.*picture placeholder"):
            loaded.generate(text, images=paths(folder, *letters))
    token = loaded.options.config.image_token
    with pytest.raises(cc.UsageError, match=r"E-LM-PLACEHOLDER.*no picture"):
        loaded([[60, token, token, 61]])
    arrays = loaded.prompted(f"{marker} this", paths(folder, "a")).arrays
    with pytest.raises(cc.UsageError, match=r"E-LM-PLACEHOLDER.*2 placeholders .* rows of features"):
        loaded([[60, token, token, 61]], pixel_values=arrays["pixel_values"])
    with pytest.raises(cc.UsageError, match="no input labels"):
        loaded([[60, 61]], labels=[1])


BAD_ARRAYS = {
    "text": (lambda pixels: np.array(["a"]), "no numbers"),
    "empty": (lambda pixels: pixels[:0], "no numbers"),
    "flat": (np.ravel, "E-RUN-SHAPE"),
    "nan": (lambda pixels: pixels * np.nan, "E-MODEL-NAN"),
}


@pytest.mark.parametrize("name", BAD_ARRAYS)
def test_pixels_of_another_kind(case, loaded, name):
    prompt = loaded.prompted(f"{FAMILIES[case[0]][1]} this", paths(case[3], "a"))
    change, why = BAD_ARRAYS[name]
    arrays = {**prompt.arrays, "pixel_values": change(prompt.arrays["pixel_values"])}
    with pytest.raises(cc.Error, match=why):
        loaded([prompt.ids], **arrays)


def test_ids_and_arrays_that_do_not_fit(case, loaded):
    for ids, why in (([[]], "no tokens"), ([[[60]]], "no tokens"), ([[60, -5]], "negative id -5")):
        with pytest.raises(cc.UsageError, match=why):
            loaded(ids)
    for name in loaded.rules.further:
        with pytest.raises(cc.UsageError, match=f"{name} has another shape"):
            loaded([[60, 61]], **{name: np.zeros((3, 3), np.int64)})
    with pytest.raises(cc.UsageError, match="are a list"):
        loaded.generate("a", images=str(case[3] / "a.png"))
    if "image_sizes" in loaded.rules.arrays:
        prompt = loaded.prompted(f"{FAMILIES[case[0]][1]} this", paths(case[3], "a"))
        for sizes in ([[1000, 8]], [[8, -8]], [[8, 8], [8, 8]], [8, 8], [[8.5, 8]]):
            with pytest.raises(cc.UsageError, match="image_sizes must have"):
                loaded([prompt.ids], **{**prompt.arrays, "image_sizes": np.array(sizes)})


def test_a_picture_of_one_pixel(case, loaded, tmp_path):
    Image.new("RGB", (1, 1), (9, 99, 199)).save(tmp_path / "dot.png")
    text, _ = texts(case)[0]
    want = case[2](text=text, images=[Image.open(tmp_path / "dot.png")], return_tensors="pt")
    assert loaded.prompted(text, [tmp_path / "dot.png"]).ids == want["input_ids"][0].tolist()
    assert isinstance(loaded.generate(text, images=[tmp_path / "dot.png"], max_tokens=2), str)


def test_a_projector_of_another_width(case, tmp_path):
    folder = case[3]
    shutil.copytree(folder, tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    graph = cc.open(folder)
    name = next(name for name in graph.weights if "project" in name and name.endswith("weight") and "norm" not in name)
    arrays = {key: tensor.numpy() for key, tensor in graph.weights.items()}
    arrays[name] = np.concatenate([arrays[name], arrays[name]])
    save_file(arrays, tmp_path / "model" / "model.safetensors")
    (tmp_path / "model" / "config.json").write_text(json.dumps(config))
    with pytest.raises(cc.FormatError, match=name.replace(".", r"\.")):
        cc.models.load(tmp_path / "model")


def test_a_picture_for_a_text_model(tmp_path, capsys):
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    written(tmp_path / "llama.gguf")
    assert run(["generate", str(tmp_path / "llama.gguf"), "-p", "a", "--image", str(tmp_path / "a.png")]) == 2
    assert "the model takes no pictures" in capsys.readouterr().err

"""Florence-2 against transformers: logits, generated tokens, task prompts, other formats, exports in onnxruntime."""

import json
import types

import candle_convert as cc
import numpy as np
import pytest
import torch
import transformers
from candle_convert.convert.cli.main import run
from candle_convert.models.pipelines.multimodal.task_prompts import TASKS, prompt_of
from candle_convert.models.postprocess.location_tokens import boxes, boxes_or_polygons, plain_text, polygons, quads
from candle_convert.tests.builders.dual_encoders import clip_tokenizer
from candle_convert.tests.builders.image_checkpoints import images, randomized
from candle_convert.tests.builders.picture_texts import add_files, square, until_end
from candle_convert.tests.oracles.exported_encoder_decoder import encoder_decoder_logits
from PIL import Image
from transformers.models.florence2 import processing_florence2

VISION = {
    "depths": [1, 2, 1, 1], "embed_dim": [16, 32, 48, 64], "num_heads": [2, 2, 4, 4], "num_groups": [2, 4, 4, 2],
    "window_size": 3, "projection_dim": 64, "max_position_embeddings": 20, "max_temporal_embeddings": 10,
}  # fmt: skip
TEXT = {
    "d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 96, "decoder_ffn_dim": 96, "max_position_embeddings": 128,
    "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1, "decoder_start_token_id": 1, "forced_eos_token_id": None,
}  # fmt: skip
IMAGE = "<image>"
EDGE, FEATURES = 96, 1 + 3 * 3
TOLERANCE = 3e-5
BOX = "<loc_%d>" * 4
PIECES = [
    "<loc_%d>", BOX, BOX + BOX, "a cat", " dog\u00e9 ", "<poly>", "</poly>", "<sep>", "\n", "<s>", "</s>", "the image",
    "<od>", "1<2",
]  # fmt: skip


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    """The model in transformers and its directory."""
    tokenizer = clip_tokenizer()
    tokenizer.add_special_tokens([IMAGE, *(f"<loc_{i}>" for i in range(1000))])
    config = transformers.Florence2Config(
        text_config=TEXT | {"model_type": "bart", "vocab_size": tokenizer.get_vocab_size()},
        vision_config=VISION,
        image_token_id=tokenizer.token_to_id(IMAGE),
    )
    model = randomized(transformers.Florence2ForConditionalGeneration(config)).eval()
    model.generation_config = transformers.GenerationConfig(
        decoder_start_token_id=1, pad_token_id=1, eos_token_id=1, bos_token_id=0
    )
    folder = tmp_path_factory.mktemp("florence2")
    model.save_pretrained(folder)
    add_files(folder, square("CLIPImageProcessor", EDGE), tokenizer, max_length=24, decoder_start_token_id=1)
    settings = json.loads((folder / "preprocessor_config.json").read_text()) | {"do_center_crop": False}
    (folder / "preprocessor_config.json").write_text(json.dumps(settings))
    return model, folder


def arrays(model):
    """Two pictures, prompts of which one is padded, and the first tokens of texts."""
    image = [model.config.image_token_id] * FEATURES
    return {
        "pixel_values": images(2, EDGE, EDGE),
        "input_ids": np.array([[*image, 0, 9, 30, 1], [*image, 0, 7, 1, 1]]),
        "attention_mask": np.array([[1] * (FEATURES + 4), [1] * (FEATURES + 3) + [0]]),
        "decoder_input_ids": np.array([[1, 5, 9], [1, 7, 200]]),
    }


def expected(model):
    with torch.no_grad():
        return model(**{name: torch.tensor(array) for name, array in arrays(model).items()}).logits.numpy()


def compare(found, want):
    assert np.abs(found - want).max() <= TOLERANCE * np.abs(want).max()


def test_logits(case):
    model, folder = case
    compare(cc.models.load(folder, threads=1)(**arrays(model))["logits"], expected(model))


def test_tokens_as_transformers_generates_them(case):
    model, folder = case
    given = {name: array for name, array in arrays(model).items() if name in ("pixel_values", "input_ids")}
    tensors = {name: torch.tensor(array) for name, array in given.items()}
    want = model.generate(**tensors, num_beams=1, do_sample=False, max_length=24).tolist()
    found = cc.models.load(folder, activations="f32").write(given["pixel_values"], given["input_ids"])
    for row, text in zip(want, found, strict=True):
        assert text.tokens == until_end(row[1:])


@pytest.mark.parametrize("kind", ["safetensors", "gguf"])
def test_other_formats(case, tmp_path, kind):
    model, folder = case
    target = tmp_path / ("model.gguf" if kind == "gguf" else "again")
    cc.convert(folder, target, to=kind, attachments=kind != "gguf")
    compare(cc.models.load(target, threads=1)(**arrays(model))["logits"], expected(model))
    if kind == "safetensors":
        again = transformers.Florence2ForConditionalGeneration.from_pretrained(target).eval()
        compare(expected(again), expected(model))


def test_export_in_onnxruntime(case, tmp_path):
    model, folder = case
    cc.convert(folder, tmp_path, to="onnx")
    compare(encoder_decoder_logits(tmp_path, arrays(model)), expected(model))


@pytest.fixture
def processor(monkeypatch):
    """Florence-2's processor, with the parts of others that its prompts and post-processing read."""
    monkeypatch.setattr(processing_florence2.ProcessorMixin, "__init__", lambda *arguments, **named: None)
    tokenizer = types.SimpleNamespace(all_special_tokens=[], image_token=IMAGE, image_token_id=0)
    rules = {name: {} for name in ("ocr", "pure_text", "description_with_bboxes", "polygons", "bboxes")}
    rules |= {"description_with_bboxes_or_polygons": {}, "phrase_grounding": {"banned_grounding_tokens": ["the image"]}}
    image = types.SimpleNamespace(image_seq_length=577)
    return processing_florence2.Florence2Processor(image, tokenizer, post_processor_config=rules)


@pytest.mark.parametrize("token", TASKS)
def test_prompts_are_those_of_transformers(processor, token):
    task = token + ("a cat on a mat" if "{}" in TASKS[token].prompt else "")
    assert prompt_of(task) == (token, *processor._construct_prompts(task))


def generated_texts():
    random = np.random.default_rng(5)
    for _ in range(200):
        text = "".join(PIECES[i] for i in random.integers(0, len(PIECES), random.integers(1, 9)))
        yield text % tuple(random.integers(0, 1000, text.count("%d")).tolist())


def outlines(regions):
    return [([point for corner in each.corners for point in corner], each.label) for each in regions]


def test_regions_are_those_of_transformers(processor):
    size = (479, 640)
    read = {
        "<OD>": boxes,
        "<CAPTION_TO_PHRASE_GROUNDING>": lambda text, size: boxes(text, size, banned=["the image"]),
        "<REGION_PROPOSAL>": lambda text, size: boxes(text, size, named=False),
        "<OCR_WITH_REGION>": quads,
        "<REFERRING_EXPRESSION_SEGMENTATION>": polygons,
        "<OPEN_VOCABULARY_DETECTION>": boxes_or_polygons,
    }
    counts = dict.fromkeys(read, 0)
    for text in generated_texts():
        for task, reader in read.items():
            (want,) = processor.post_process_generation(text, task=task, image_size=size[::-1]).values()
            pairs = []
            for spots, labels in (("bboxes", "labels"), ("quad_boxes", "labels"), ("bboxes", "bboxes_labels")):
                if spots in want and labels in want:
                    pairs += zip(want[spots], want[labels], strict=True)
            for labels in ("labels", "polygons_labels"):
                if "polygons" in want and labels in want:
                    grouped = zip(want["polygons"], want[labels], strict=True)
                    pairs += [(outline, label) for several, label in grouped for outline in several]
            assert outlines(reader(text, size)) == pairs
            counts[task] += len(pairs)
        (want,) = processor.post_process_generation(text, task="<CAPTION>", image_size=size[::-1]).values()
        assert plain_text(text) == want
    assert min(counts.values()) > 10


def test_captions_of_a_directory_and_of_its_export(case, tmp_path):
    _, folder = case
    cc.convert(folder, tmp_path, to="onnx")
    picture = folder / "a.png"
    want = cc.models.load(folder, activations="f32").predict(picture)
    assert want[0].keys() == {"generated_text"}
    assert cc.models.load(tmp_path, activations="f32").predict(picture) == want


def test_boxes_are_drawn(case, tmp_path, capsys, monkeypatch):
    _, folder = case
    text = "cat<loc_100><loc_200><loc_500><loc_900>"
    monkeypatch.setattr(cc.models.load(folder).tokenizer.__class__, "decode", lambda *arguments, **named: text)
    arguments = ["predict", str(folder), str(folder / "a.png"), "--task", "<OD>", "-o", str(tmp_path), "--json"]
    assert run(arguments) == 0
    (result,) = json.loads(capsys.readouterr().out)["results"][0]["found"]
    assert result == {"label": "cat", "box": {"xmin": 7, "ymin": 8, "xmax": 35, "ymax": 36}}
    before, after = (np.array(Image.open(path).convert("RGB")) for path in (folder / "a.png", tmp_path / "a.png"))
    assert (before != after).any()


def test_bad_input(case, tmp_path, capsys):
    model, folder = case
    found, picture = cc.models.load(folder), folder / "a.png"
    for task, message in (("<NONE>", "no task"), ("<OD>x", "takes no text"), ("<REGION_TO_OCR>", "needs a text")):
        with pytest.raises(cc.UsageError, match=message):
            found.predict(picture, task=task)
    with pytest.raises(cc.UsageError, match="placeholder tokens"):
        found(**arrays(model) | {"input_ids": [[0, 5, 1]] * 2, "attention_mask": None})
    assert run(["predict", str(folder), str(picture), "--question", "why?"]) == 2
    assert "has no option question" in capsys.readouterr().err
    Image.new("RGB", (1, 1)).save(tmp_path / "dot.png")
    assert found.predict(tmp_path / "dot.png")[0].keys() == {"generated_text"}

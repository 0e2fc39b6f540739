"""Pipelines of Transformers.js run our exports in every precision, and answer as our engine does on the same files."""

import dataclasses
import json
import shutil
from collections.abc import Callable
from typing import Any, NamedTuple

import candle_convert as cc
import numpy as np
import onnx
import pytest
import transformers
from candle_convert.convert.write.graph_variants import VARIANTS
from candle_convert.tests.builders import text_checkpoints
from candle_convert.tests.builders.encoder_decoder_cases import ENCODER_DECODERS, T5_SIZE, with_tokenizer
from candle_convert.tests.builders.image_checkpoints import DETR, VIT, image_model, saved
from candle_convert.tests.builders.paths import EXAMPLES
from candle_convert.tests.builders.pictures import MADE
from candle_convert.tests.builders.speech_checkpoints import tones
from candle_convert.tests.builders.whisper_files import published
from candle_convert.tests.oracles.exact_onnxruntime import saturates, unsigned
from candle_convert.tests.oracles.transformers import made
from candle_convert.tests.oracles.transformers_js import answered, needs_node
from PIL import Image

DTYPES = {"fp32": "f32", "fp16": "f16", "q8": "q8", "q4": "q4"}
"""Precisions by Transformers.js' names: ours."""
PROMPT, SOURCE = "In the beginning", "translate: The files of a module"
TEXTS = ["the cat sat on the mat", "what?"]
RATE, SECONDS = 16_000, 30
BOUNDS = {"fp32": 1e-4, "fp16": 5e-3, "q8": 5e-3, "q4": 1e-3}
"""Difference of scores and elements of vectors, where both compute the same graph. The bytes of q8 are rounded from
sums in another order."""
BODY = """
const extra = { session: { x64quantprecision: '1' } };
const pipe = await js.pipeline(given.task, 'model', { dtype: given.dtype, session_options: { extra } });
"""
"""The option lets ONNX Runtime multiply bytes exactly on processors without VNNI, as `exact_onnxruntime` says."""


def text_generation(folder):
    shutil.copytree(EXAMPLES / "tiny_llama", folder, dirs_exist_ok=True)


def feature_extraction(folder):
    text_checkpoints.checkpoint("BertModel", folder)


def fill_mask(folder):
    text_checkpoints.checkpoint("BertForMaskedLM", folder)


def translation(folder):
    case = ENCODER_DECODERS[0]
    made(dataclasses.replace(case, base={**case.base, "vocab_size": T5_SIZE}), 0, folder, saved=True)
    with_tokenizer(folder)


def speech(folder):
    published(0, folder)
    kind = {"feature_extractor_type": "WhisperFeatureExtractor", "feature_size": 80, "chunk_length": SECONDS}
    sizes = {"hop_length": 160, "n_fft": 400, "n_samples": SECONDS * RATE, "nb_max_frames": 3000, "sampling_rate": RATE}
    (folder / "preprocessor_config.json").write_text(json.dumps({**kind, **sizes}))


def classes(folder):
    saved(image_model("ViTForImageClassification", **VIT), folder)
    transformers.ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(folder)


def segments(folder):
    shape = {"depths": [1] * 4, "hidden_sizes": [8, 16, 24, 32], "num_attention_heads": [1, 2, 2, 4]}
    saved(image_model("SegformerForSemanticSegmentation", **shape, num_labels=4, decoder_hidden_size=16), folder)
    transformers.SegformerImageProcessor(size={"height": 64, "width": 96}).save_pretrained(folder)


def boxes(folder):
    network = image_model("DetrForObjectDetection", **DETR)
    network.class_labels_classifier.bias.data[-1] = -9  # Transformers.js leaves out boxes that are probably none
    saved(network, folder)
    transformers.DetrImageProcessor(size={"shortest_edge": 64, "longest_edge": 96}).save_pretrained(folder)


class Task(NamedTuple):
    """A pipeline.

    Attributes:
        checkpoint: writes the model; file: of the export, without the suffix of its precision.
        program: statements that return what the pipeline ``pipe`` answers; ours: our answer, in the same form.
        picture: height and width of the picture.
    """

    checkpoint: Callable[..., Any]
    file: str
    program: str
    ours: Callable[..., Any]
    picture: tuple[int, int] = (32, 32)


def our_text(model, given):
    return PROMPT + model.generate(PROMPT, max_tokens=12, temperature=0)


def our_transcript(model, given):
    plain = {"timestamps": False, "temperature": 0.0, "beams": 1, "logprob_threshold": None}
    return model.transcribe(np.array(given["samples"], np.float32), RATE, language="en", **plain).text


def our_classes(model, given):
    return [[row["label"], row["score"]] for row in model.predict(given["picture"], top=5)]


def our_segments(model, given):
    """How many pixels each class has."""
    return {row["label"]: int(np.asarray(row["mask"]).sum()) for row in model.predict(given["picture"])}


def our_boxes(model, given):
    rows = model.predict(given["picture"], threshold=0.05)
    return [[row["label"], row["score"], *row["box"].values()] for row in rows]


TASKS = {
    "text-generation": Task(
        text_generation, "model", f"return (await pipe('{PROMPT}', {{ max_new_tokens: 12 }}))[0].generated_text;",
        our_text,
    ),
    "feature-extraction": Task(
        feature_extraction, "model",
        "const rows = []; for (const text of given.texts)"
        " rows.push(Array.from((await pipe(text, { pooling: 'mean', normalize: false })).data)); return rows;",
        lambda model, given: np.concatenate([model.embed([text]) for text in given["texts"]]),
    ),
    "fill-mask": Task(
        fill_mask, "model",
        "return (await pipe('the [MASK] sat', { top_k: 5 })).map(row => [row.token_str, row.score]);",
        lambda model, given: [[row["token"], row["score"]] for row in model.predict(["the [MASK] sat"], top=5)[0]],
    ),
    "translation": Task(
        translation, "decoder_model_merged",
        f"return (await pipe('{SOURCE}', {{ max_new_tokens: 20 }}))[0].translation_text;",
        lambda model, given: model.generate(SOURCE, max_tokens=20),
    ),
    "automatic-speech-recognition": Task(
        speech, "decoder_model_merged",
        "return (await pipe(Float32Array.from(given.samples), { language: 'en', task: 'transcribe' })).text;",
        our_transcript,
    ),
    "image-classification": Task(
        classes, "model", "return (await pipe(given.picture, { top_k: 5 })).map(row => [row.label, row.score]);",
        our_classes,
    ),
    "image-segmentation": Task(
        segments, "model",
        "return Object.fromEntries((await pipe(given.picture)).map("
        "row => [row.label, row.mask.data.reduce((sum, value) => sum + (value > 0), 0)]));",
        our_segments, (64, 96),
    ),
    "object-detection": Task(
        boxes, "model",
        "return (await pipe(given.picture, { threshold: 0.05 })).map("
        "({ label, score, box }) => [label, score, box.xmin, box.ymin, box.xmax, box.ymax]);",
        our_boxes, (64, 96),
    ),
}  # fmt: skip


@pytest.fixture(scope="module", params=TASKS)
def exported(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    task = TASKS[request.param]
    (folder / "checkpoint").mkdir()
    task.checkpoint(folder / "checkpoint")
    cc.convert(folder / "checkpoint", folder / "model", to="onnx", dtypes=tuple(DTYPES.values()))
    for path in (folder / "model" / "onnx").glob("*_quantized.onnx"):
        if saturates():
            onnx.save(unsigned(onnx.load(path)), path)
    height, width = task.picture
    Image.fromarray(MADE[0][:height, :width]).save(folder / "picture.png")
    return request.param, folder


@needs_node
@pytest.mark.parametrize("dtype", DTYPES)
def test_pipeline(exported, dtype):
    name, folder = exported
    task = TASKS[name]
    given = {"texts": TEXTS, "picture": str(folder / "picture.png"), "samples": tones(SECONDS).tolist()}
    got = answered(BODY + task.program, folder, task=name, dtype=dtype, **given)
    file = folder / "model" / "onnx" / f"{task.file}{VARIANTS[DTYPES[dtype]].suffix}.onnx"
    model = cc.models.load(folder / "checkpoint" if dtype == "fp32" else file, activations="f32")
    want = task.ours(model, given)
    if name == "automatic-speech-recognition":
        assert len(want) > 50
        assert got.startswith(want), "ours ends after half of the decoder's positions"
    elif isinstance(want, str):
        assert got == want
    elif name == "feature-extraction":
        np.testing.assert_allclose(got, want, atol=BOUNDS[dtype])
    elif name == "image-segmentation":
        assert got.keys() == want.keys()
        assert list(got.values()) == pytest.approx([want[label] for label in got], abs=60 if dtype == "q8" else 10)
    else:
        assert len(got) == len(want) > 2
        for row in want:
            other = min(got, key=lambda other: distance(row, other))
            assert distance(row, other) < BOUNDS[dtype]
            assert other[2:] == [int(edge) for edge in row[2:]] or dtype != "fp32"


def distance(row, other):
    """Between two rows of a label, a score and edges of a box in pixels, which Transformers.js cuts to integers."""
    if row[0] != other[0]:
        return np.inf
    return max(abs(row[1] - other[1]), *(abs(int(a) - b) // 2 for a, b in zip(row[2:], other[2:], strict=True)), 0)


@needs_node
@pytest.mark.parametrize("size", [32, {"height": 32, "width": 32}], ids=["number", "object"])
def test_settings_that_the_checkpoint_leaves_out(size, tmp_path):
    """Transformers.js takes what preprocessor_config.json does not state as switched off."""
    classes(tmp_path / "checkpoint")
    stated = {"image_processor_type": "ViTImageProcessor", "size": size}
    (tmp_path / "checkpoint" / "preprocessor_config.json").write_text(json.dumps(stated))
    cc.convert(tmp_path / "checkpoint", tmp_path / "model", to="onnx", dtypes=("f32",))
    given = {"picture": str(tmp_path / "picture.png")}
    Image.fromarray(MADE[0][:32, :32]).save(given["picture"])
    task = TASKS["image-classification"]
    got = answered(BODY + task.program, tmp_path, task="image-classification", dtype="fp32", **given)
    want = task.ours(cc.models.load(tmp_path / "checkpoint"), given)
    assert len(got) == len(want) > 2
    for row in want:
        assert min(distance(row, other) for other in got) < BOUNDS["fp32"]

"""Pages in headless Chromium: what they answer is what the model computes, and they load nothing from elsewhere."""

import contextlib
import dataclasses
import json
import re
import shutil

import candle_convert as cc
import numpy as np
import pytest
import soundfile
import torch
from candle_convert.convert.cli.main import run
from candle_convert.convert.page.make_page import ASSETS
from candle_convert.convert.page.npm_packages import ONNXRUNTIME, TRANSFORMERS
from candle_convert.convert.page.picture_preparation import preparation_json
from candle_convert.models.preprocess.preparation import letterbox
from candle_convert.models.preprocess.stated_preparation import preparation_from
from candle_convert.tests.builders.encoder_decoder_cases import ENCODER_DECODERS, T5_SIZE, with_tokenizer
from candle_convert.tests.builders.image_checkpoints import DETR, VIT, VIT_PREPARATION, image_model, saved
from candle_convert.tests.builders.paths import DOCS, EXAMPLES
from candle_convert.tests.builders.pictures import MADE
from candle_convert.tests.builders.preparations import PREPARATIONS
from candle_convert.tests.builders.segment_anything import segment_anything
from candle_convert.tests.builders.speech_checkpoints import tones
from candle_convert.tests.builders.tiny_llama import written
from candle_convert.tests.builders.whisper_files import published
from candle_convert.tests.builders.yolov8 import yolov8
from candle_convert.tests.oracles.chromium import NPM, Browser, Tab, needs_chromium, needs_packages, served
from candle_convert.tests.oracles.transformers import made
from PIL import Image

pytestmark = [needs_chromium, needs_packages]
SOFTWARE_GPU = ("--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader", "--enable-features=Vulkan")
"""Options of a browser whose WebGPU is SwiftShader, which has no 16-bit floats."""
RATE, WINDOW = 16_000, 30
"""Samples a second, and the seconds that Whisper hears at once: after a shorter sound our features are 0, as those of
faster-whisper, and those of Transformers.js are of silence."""

MASKS = "({ ...page.last, masks: page.last.masks.map(each => ({ ...each, mask: Array.from(each.mask) })) })"
"""The answer of a page of masks as JSON."""


@pytest.fixture(scope="module", params=["wasm", "webgpu"])
def browser(request):
    """A browser without a GPU, and one that computes for WebGPU on the processor."""
    found = Browser(*(SOFTWARE_GPU if request.param == "webgpu" else ()))
    found.device = request.param
    yield found
    found.close()


@contextlib.contextmanager
def opened(browser, site, device=None):
    """A page that has loaded its model; `device`: what it runs on, if it is not what the browser has."""
    tab = Tab(browser)
    with served(site) as address:
        tab.open(address)
        assert tab.wait("document.body.dataset.ready") == (device or browser.device)
        yield tab
        assert not tab.errors
        assert tab.requests
        assert {each for each in tab.requests if not each.startswith((address, "blob:", "data:"))} == set()


def answer(tab, *actions, value="page.last"):
    """What the page answers after some statements, or functions, by an expression."""
    before = tab.value("Number(document.body.dataset.answers || 0)")
    for each in actions:
        each() if callable(each) else tab.value(each)
    tab.wait(f"Number(document.body.dataset.answers || 0) > {before}")
    return tab.value(value)


def page(model, folder, *options):
    """The folder of a page of a model."""
    site = folder / "site"
    assert run(["page", str(model), "-o", str(site), "--runtime", NPM, "-q", *options]) == 0
    return site


def asked(text):
    """Statements that ask for a text."""
    return f"document.querySelector('#text').value = {json.dumps(text)}", "document.querySelector('#send').click()"


@pytest.mark.parametrize("begins", [False, True])
def test_text_is_generated(browser, tmp_path, begins):
    """By a model whose prompts begin with a token of their own, as its tokenizer.json alone says, and by another."""
    model = written(tmp_path / "lm.gguf") if begins else EXAMPLES / "tiny_llama"
    site = page(model, tmp_path)
    path = site / "model" / "tokenizer_config.json"
    stated = json.loads(path.read_text())
    assert stated.pop("add_bos_token", False) == begins
    path.write_text(json.dumps(stated))
    with opened(browser, site) as tab:
        found = answer(tab, "document.querySelector('#tokens').value = 24", *asked("And God said unto"))
        shown = tab.value("document.querySelector('.assistant').textContent")
    want = cc.models.load(model).generate("And God said unto", max_tokens=24, temperature=0)
    assert found["text"] == want
    assert shown == f"And God said unto{want}"


@pytest.mark.parametrize(
    ("dtype", "suffix"), [("f16", "_fp16"), ("q8", "_quantized"), ("q4", "_q4"), ("q4f16", "_q4f16")]
)
def test_text_of_smaller_models(browser, tmp_path, dtype, suffix):
    site = page(EXAMPLES / "tiny_llama", tmp_path, "--dtype", dtype)
    without_halves = "wasm" if dtype.endswith("16") else None
    with opened(browser, site, without_halves) as tab:
        found = answer(tab, "document.querySelector('#tokens').value = 12", *asked("And God said unto"))
    exported = cc.models.load(site / "model" / "onnx" / f"model{suffix}.onnx")
    assert found["text"] == exported.generate("And God said unto", max_tokens=12, temperature=0)


def test_conversations(browser, tmp_path):
    """The model sees all turns; a turn that failed, and an answer to turns that were cleared, are none of them."""
    folder = tmp_path / "chat"
    shutil.copytree(EXAMPLES / "tiny_llama", folder)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    template = "{% for each in messages %}{{ each.role }}: {{ each.content }}\n{% endfor %}assistant:"
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template": template}))
    model = cc.models.load(folder)
    with opened(browser, page(folder, tmp_path)) as tab:
        tab.value("document.querySelector('#tokens').value = 8")
        first = answer(tab, *asked("Go forth"))["text"]
        prompt = "user: Go forth\nassistant:"
        assert first == model.generate(prompt, max_tokens=8, temperature=0)
        second = answer(tab, *asked("And then"))["text"]
        prompt = f"user: Go forth\nassistant: {first}\nuser: And then\nassistant:"
        assert second == model.generate(prompt, max_tokens=8, temperature=0)

        tab.value("page.ask = ({ messages }) => new Promise((resolve, reject) => Object.assign(page, "
                  "{ messages, resolve, reject, asked: (page.asked || 0) + 1 })); 0")  # fmt: skip
        roles = ["user", "assistant", "user", "assistant", "user"]
        for each in asked("Lost"):
            tab.value(each)
        assert [each["role"] for each in tab.value("page.messages")] == roles
        tab.value("document.querySelector('#text').value = 'Early'")
        for properties in ("", ", isComposing: true"):
            tab.value("document.querySelector('#text').dispatchEvent(new KeyboardEvent('keydown',"
                      f" {{ key: 'Enter', cancelable: true{properties} }}))")  # fmt: skip
        assert tab.value("page.asked") == 1
        tab.value("page.reject(new Error('no memory'))")
        assert tab.value("document.body.dataset.error") == "no memory"
        assert tab.value("document.querySelectorAll('#log > div').length") == 4
        for each in asked("Again"):
            tab.value(each)
        assert [each["content"] for each in tab.value("page.messages")] == [
            "Go forth", first, "And then", second, "Again",
        ]  # fmt: skip
        tab.value("document.querySelector('#clear').click()")
        answer(tab, "page.resolve({ text: 'late' })")
        for each in asked("Anew"):
            tab.value(each)
        assert tab.value("page.messages") == [{"role": "user", "content": "Anew"}]


def test_text_becomes_text(browser, tmp_path):
    folder = tmp_path / "t5"
    folder.mkdir()
    case = ENCODER_DECODERS[0]
    made(dataclasses.replace(case, base={**case.base, "vocab_size": T5_SIZE}), 0, folder, saved=True)
    with_tokenizer(folder)
    with opened(browser, page(folder, tmp_path)) as tab:
        found = answer(tab, "document.querySelector('#tokens').value = 20", *asked("translate: The files of a module"))
        shown = tab.value("document.querySelector('.assistant').textContent")
    want = cc.models.load(folder).generate("translate: The files of a module", max_tokens=20)
    assert want
    assert found["text"] == shown == want


def test_speech_is_transcribed(browser, tmp_path):
    folder = tmp_path / "whisper"
    folder.mkdir()
    published(0, folder)
    kind = {"feature_extractor_type": "WhisperFeatureExtractor", "feature_size": 80, "chunk_length": 30}
    sizes = {"hop_length": 160, "n_fft": 400, "n_samples": 30 * RATE, "nb_max_frames": 3000, "sampling_rate": RATE}
    (folder / "preprocessor_config.json").write_text(json.dumps({**kind, **sizes}))
    sound = tones(WINDOW)
    soundfile.write(tmp_path / "tones.wav", sound, RATE, subtype="FLOAT")
    with opened(browser, page(folder, tmp_path)) as tab:
        found = answer(tab, lambda: tab.upload("#file", tmp_path / "tones.wav"))
    plain = {"timestamps": False, "temperature": 0.0, "beams": 1, "logprob_threshold": None}
    want = cc.models.load(folder).transcribe(sound, RATE, language="en", **plain)
    assert len(want.text) > 50
    assert found["text"].startswith(want.text), "ours ends after half of the decoder's positions"


def detector(kind, folder):
    """The path of a detector, and a threshold of scores."""
    if kind == "DETR":
        made = saved(image_model("DetrForObjectDetection", **DETR), folder / "detr")
        stated = {"image_processor_type": "DetrImageProcessor", "size": {"shortest_edge": 64, "longest_edge": 96}}
        (made / "preprocessor_config.json").write_text(json.dumps({**stated, "do_pad": True}))
        return made, 0.05
    torch.save(yolov8(points=4 if kind == "YOLO v8 of poses" else 0).state_dict(), folder / "yolov8.pth")
    return folder / "yolov8.pth", 0.545


@pytest.mark.parametrize("kind", ["YOLO v8", "YOLO v8 of poses", "DETR"])
def test_boxes_are_found(browser, tmp_path, kind):
    model, threshold = detector(kind, tmp_path)
    Image.fromarray(MADE[0][:64, :96] if kind == "DETR" else MADE[0]).save(tmp_path / "picture.png")
    with opened(browser, page(model, tmp_path)) as tab:
        low = f"document.querySelector('#threshold').value = {threshold}"
        found = answer(tab, low, lambda: tab.upload("#file", tmp_path / "picture.png"))
        rows = tab.value("document.querySelectorAll('tr').length")
    want = cc.models.load(model).predict(tmp_path / "picture.png", threshold=threshold)
    assert len(want) == len(found) == rows > 3
    for other in want:
        edges = list(other["box"].values())
        row = min(found, key=lambda each: sum(map(abs, np.subtract(list(each["box"].values()), edges))))
        assert row["label"] == other["label"]
        assert row["score"] == pytest.approx(other["score"], abs=1e-5)
        assert list(row["box"].values()) == pytest.approx(edges, abs=0.02)
        assert np.ravel(row.get("keypoints", [])) == pytest.approx(np.ravel(other.get("keypoints", [])), abs=0.02)
    assert ("keypoints" in found[0]) == (kind == "YOLO v8 of poses")


@pytest.mark.parametrize("several", [False, True])
def test_pictures_are_classified(browser, tmp_path, several):
    kind = "multi_label_classification" if several else "single_label_classification"
    count = 12 if several else 1000
    settings = VIT | {"num_labels": count, "problem_type": kind}
    folder = saved(image_model("ViTForImageClassification", **settings), tmp_path / "vit")
    (folder / "preprocessor_config.json").write_text(VIT_PREPARATION)
    Image.fromarray(MADE[0][:32, :32]).save(tmp_path / "picture.png")
    with opened(browser, page(folder, tmp_path)) as tab:
        found = answer(tab, lambda: tab.upload("#file", tmp_path / "picture.png"))
        shown = tab.value("document.querySelector('td').textContent")
    want = cc.models.load(folder).predict(tmp_path / "picture.png", top=None)
    assert (len(want), shown) == (count, want[0]["label"])
    assert (sum(each["score"] for each in want) > 1.5) == several
    scores = {each["label"]: each["score"] for each in found}
    assert [scores[each["label"]] for each in want] == pytest.approx([each["score"] for each in want], rel=1e-3)


def test_masks_follow_clicks(browser, tmp_path):
    folder = saved(segment_anything(), tmp_path / "sam")
    Image.fromarray(MADE[0]).save(tmp_path / "picture.png")
    with opened(browser, page(folder, tmp_path)) as tab:
        answer(tab, lambda: tab.upload("#file", tmp_path / "picture.png"))
        for count, (x, y) in enumerate([(0.3, 0.6), (0.8, 0.2)], 1):
            found = answer(tab, lambda x=x, y=y: tab.click("#picture", x, y), value=MASKS)
            assert len(found["points"]) == count
            want = cc.models.load(folder).predict(tmp_path / "picture.png", points=found["points"])
            assert len(want) == len(found["masks"]) == (3 if count == 1 else 1)
            for row, other in zip(found["masks"], want, strict=True):
                assert row["score"] == pytest.approx(other["score"], abs=1e-3)
                mask = np.array(row["mask"], bool).reshape(other["mask"].size)
                assert (mask != np.asarray(other["mask"])).mean() < 5e-3


def test_the_guide_works_as_typed(browser, tmp_path, monkeypatch, capsys):
    text = (DOCS / "guide" / "page.md").read_text()
    install, make = re.findall(r"^```sh\n(npm .*)\n(candle-convert .*)\n```", text, re.MULTILINE)[0]
    assert install == f"npm install {ONNXRUNTIME} {TRANSFORMERS}"
    (shown,) = re.findall(r"^```text\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(EXAMPLES)
    (tmp_path / "node_modules").symlink_to(f"{NPM}/node_modules")
    assert run(make.split()[1:]) == 0
    printed = capsys.readouterr().out
    assert [re.sub(r"\d[\w.-]*", "#", line.rstrip()) for line in printed.splitlines()] == [
        re.sub(r"\d[\w.-]*", "#", line) for line in shown.splitlines()
    ]
    with opened(browser, tmp_path / "site") as tab:
        assert answer(tab, *asked("And God said unto"))["text"]


@pytest.fixture(scope="module")
def site(browser):
    """A page of the scripts alone."""
    tab = Tab(browser)
    with served(ASSETS) as address:
        tab.open(f"{address}prepare.js")
        tab.wait("document.readyState === 'complete'")
        yield tab


@pytest.mark.parametrize("picture", range(len(MADE)))
@pytest.mark.parametrize("name", [*PREPARATIONS, "letterbox"])
def test_pictures_are_prepared_as_pillow_does(site, name, picture):
    preparation = letterbox(48, 56) if name == "letterbox" else preparation_from(PREPARATIONS[name])
    stated, pixels = json.dumps(preparation_json(preparation)), MADE[picture]
    height, width, _ = pixels.shape
    found = site.value(
        f"import('./prepare.js').then(({{ prepared }}) => {{ const {{ values, ...at }} = prepared({stated},"
        f" Uint8Array.from({pixels.reshape(-1).tolist()}), {height}, {width});"
        " return { ...at, values: Array.from(values) }; })"
    )
    fed, (at,) = preparation.batch([preparation.prepare(pixels)])
    assert (tuple(found["resized"]), tuple(found["corner"])) == (at.resized, at.corner)
    want = fed["pixel_values"][0]
    steps = np.abs(np.reshape(found["values"], want.shape) - want) / np.array(preparation.factor)[:, None, None]
    assert np.quantile(steps, 0.99) < 1.01
    assert steps.max() < (8 if name == "cubic" else 1.01), "Pillow may take heights first"
    assert steps.mean() < 0.25

"""The page at ``/`` in headless Chromium: a chat, cosines of texts, labels of a picture, and errors."""

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("uvicorn", reason="the server needs uvicorn, of the extra serve")
import transformers  # noqa: E402
from candle_convert.tests.builders.image_checkpoints import image_model, saved  # noqa: E402
from candle_convert.tests.builders.model_server import chat_model, serving  # noqa: E402
from candle_convert.tests.builders.packaged_models import minilm  # noqa: E402
from candle_convert.tests.oracles.chromium import Browser, Tab, needs_chromium  # noqa: E402
from PIL import Image  # noqa: E402

pytestmark = needs_chromium
TEXTS = ["A cat sits on the mat.", "A kitten rests on a rug.", "Interest rates rose."]


@pytest.fixture(scope="module")
def vision(tmp_path_factory):
    sizes = {"image_size": 16, "patch_size": 8, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    folder = tmp_path_factory.mktemp("models") / "vision"
    saved(image_model("ViTForImageClassification", **sizes, intermediate_size=16), folder)
    (folder / "preprocessor_config.json").write_text('{"size": 16, "image_processor_type": "ViTImageProcessor"}')
    return folder


@pytest.fixture(scope="module")
def tab(tmp_path_factory, vision):
    chat = chat_model(tmp_path_factory.mktemp("models") / "chat")
    names = [word for name in ("chat", "minilm", "vision") for word in ("--alias", name)]
    with serving([chat, minilm(), vision, *names, "--threads", "1", "--context", "200"]) as server:
        browser = Browser()
        try:
            made = Tab(browser)
            made.open(server.address)
            made.wait("document.querySelectorAll('#model option').length === 3")
            yield made
            assert made.errors == []
            assert all(address.startswith((server.address, "data:", "blob:")) for address in made.requests)
        finally:
            browser.close()


def said(tab, model, text="", picture=None):
    """What the page shows for a text of a user: the element of the answer, by kind and text."""
    tab.value(
        f"(at('clear').click(), at('model').value = {model!r}, at('model').dispatchEvent(new Event('change')), 0)"
    )
    if picture is not None:
        tab.upload("#file", picture)
        tab.wait("at('pictures').querySelector('img')")
    tab.value(f"(at('text').value = {json.dumps(text)}, 0)")
    tab.click("#send")
    tab.wait("at('log').children.length === 2 && !running && at('stop').hidden")
    return tab.value("[...at('log').children].map(each => [each.className, each.textContent])")


def test_chat(tab):
    user, (kind, answer) = said(tab, "chat", "Who made the earth?")
    assert user == ["user", "Who made the earth?"]
    assert (kind, bool(answer.strip())) == ("assistant", True)
    assert tab.value("messages.map(each => each.role)") == ["user", "assistant"]


def test_cosines(tab):
    said(tab, "minilm", "\n".join(TEXTS))
    shown = tab.value(
        "[...document.querySelectorAll('#log tr')].map(row => [...row.cells].map(each => each.textContent))"
    )
    assert [row[0] for row in shown] == TEXTS
    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm())
    inputs = tokenizer(TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        hidden = transformers.AutoModel.from_pretrained(minilm())(**inputs).last_hidden_state
    vectors = (hidden * inputs["attention_mask"][..., None]).sum(1) / inputs["attention_mask"].sum(1, keepdim=True)
    vectors = torch.nn.functional.normalize(vectors)
    np.testing.assert_allclose(
        np.array([row[1:] for row in shown], float), (vectors @ vectors.T).numpy(), rtol=0, atol=2e-4
    )


def test_a_picture(tab, vision, tmp_path):
    path = tmp_path / "picture.png"
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (20, 24, 3), np.uint8))
    picture.save(path)
    _, (kind, answer) = said(tab, "vision", picture=path)
    assert kind == "assistant"
    model = transformers.AutoModelForImageClassification.from_pretrained(vision)
    pixels = torch.from_numpy(np.asarray(picture.resize((16, 16), Image.Resampling.BILINEAR)) / 255.0).float()
    with torch.no_grad():
        wanted = model(pixel_values=((pixels - 0.5) / 0.5).permute(2, 0, 1)[None]).logits.softmax(-1)[0]
    found = json.loads(answer)
    rows = found[0] if isinstance(found[0], list) else found
    assert rows[0]["label"] == model.config.id2label[int(wanted.argmax())]
    assert rows[0]["score"] == pytest.approx(float(wanted.max()), abs=1e-3)


def test_an_error(tab):
    _, (kind, answer) = said(tab, "minilm", "word " * 2000)
    assert kind == "error"
    assert "tokens" in answer

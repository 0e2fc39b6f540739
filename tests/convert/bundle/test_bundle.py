"""Bundles answer without the packages that compile, and where nothing can be written, as the package does."""

import base64
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request

import candle_convert as cc
import numpy as np
import onnxruntime
import pytest
import soundfile
from candle_convert.convert.bundle.bundled_program import best
from candle_convert.convert.bundle.make_bundle import make_bundle
from candle_convert.convert.cli.main import run
from candle_convert.runtime.jit import isa
from candle_convert.tests.builders import text_checkpoints
from candle_convert.tests.builders.image_checkpoints import image_model, saved
from candle_convert.tests.builders.onnx_files import save, value
from candle_convert.tests.builders.speech_checkpoints import WHISPERS, tones, whisper
from candle_convert.tests.builders.tiny_llama import written
from onnx import helper
from PIL import Image

BLOCKED = ("numba", "llvmlite.binding", "onnx", "click", "rich", "google", "safetensors", "gguf", "ml_dtypes", "torch")
PROGRAM = f"""
import runpy, sys, tempfile
tempfile._candidate_tempdir_list = lambda: []
sys.modules.update(dict.fromkeys({BLOCKED!r}))
sys.argv.pop(0)
runpy.run_path(sys.argv[0], run_name="__main__")
"""
REQUEST = {"op": "generate", "prompt": "And", "max_tokens": 6, "seed": 3}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return written(tmp_path_factory.mktemp("model") / "tiny.gguf")


@pytest.fixture(scope="module")
def bundle(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("bundle") / "app"
    folder.mkdir()
    made = make_bundle(str(model), folder)
    assert made.packages == ("numpy",)
    assert made.code < 15 << 20
    for path in [*folder.rglob("*"), folder]:
        path.chmod(path.stat().st_mode & ~0o222)
    return folder


def _environment(tmp_path):
    """Without a folder for a cache, and without this package on the path."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", isa.VARIABLE)}
    return {**kept, "HOME": str(tmp_path / "none"), "XDG_CACHE_HOME": ""}


def _started(bundle, tmp_path, *words):
    return subprocess.Popen(
        [sys.executable, "-S", "-c", f"import sys; sys.path.append({os.path.dirname(os.path.dirname(np.__file__))!r})\n"
         + PROGRAM, str(bundle), *words],
        env=_environment(tmp_path), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def test_lines_are_answered_as_the_package_answers(bundle, model, tmp_path):
    wrong = [{"op": "embed", "inputs": ["x"]}, {"op": "generate"}, {"op": "generate", "prompt": "x", "shape": 3}]
    lines = [json.dumps(each) for each in (REQUEST, *wrong)] + ["{", "[]", ""]
    out, said = _started(bundle, tmp_path).communicate("\n".join(lines), timeout=600)
    answers = [json.loads(line) for line in out.splitlines()]
    assert answers[0] == {"text": cc.models.load(model).generate("And", max_tokens=6, seed=3)}
    codes = [each["error"]["code"] for each in answers[1:]]
    assert codes == ["E-BUNDLE-OP", "E-BUNDLE-FIELD", "E-SAMPLE-OPTION", "E-BUNDLE-FIELD", "E-BUNDLE-OP"], said
    assert not said


def _post(address, body, **headers):
    return urllib.request.Request(address, body, {"Content-Type": "application/json", **headers})


def test_http_answers_and_refuses(bundle, model, tmp_path):
    process = _started(bundle, tmp_path, "--http", "0")
    try:
        address = process.stderr.readline().split()[0]
        with urllib.request.urlopen(f"{address}/health", timeout=60) as answer:
            assert json.load(answer) == {"operations": ["generate"]}
        fields = json.dumps({key: value for key, value in REQUEST.items() if key != "op"}).encode()
        with urllib.request.urlopen(_post(f"{address}/generate", fields), timeout=60) as answer:
            assert json.load(answer)["text"] == cc.models.load(model).generate("And", max_tokens=6, seed=3)
        for path, body in (("generate", b"{"), ("generate", b"[1]"), ("embed", b"{}"), ("../x", b"{}")):
            with pytest.raises(urllib.error.HTTPError, match="400"):
                urllib.request.urlopen(_post(f"{address}/{path}", body), timeout=60)
        for headers, status in (({"Content-Type": "text/plain"}, "415"), ({"Host": "evil.example"}, "403")):
            with pytest.raises(urllib.error.HTTPError, match=status):
                urllib.request.urlopen(_post(f"{address}/generate", fields, **headers), timeout=60)
    finally:
        process.terminate()
        process.communicate()


def test_pictures_come_by_path_or_in_base64(tmp_path):
    sizes = {"image_size": 16, "patch_size": 8, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    network = image_model("ViTForImageClassification", **sizes, intermediate_size=16, num_labels=3)
    made = saved(network, tmp_path / "vit")
    (made / "preprocessor_config.json").write_text('{"size": 16, "image_processor_type": "ViTImageProcessor"}')
    picture = tmp_path / "x.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (20, 24, 3), np.uint8)).save(picture)
    app = tmp_path / "app"
    app.mkdir()
    request = {"op": "predict", "inputs": [str(picture)], "top": 2}
    assert make_bundle(str(made), app, requests=[request]).packages == ("numpy", "pillow")
    held = {**request, "inputs": [{"data": base64.b64encode(picture.read_bytes()).decode()}]}
    lines = [json.dumps(each) for each in (request, held, {**request, "inputs": [str(tmp_path / "none")]})]
    out, said = _started(app, tmp_path).communicate("\n".join(lines), timeout=600)
    first, second, missing = (json.loads(line) for line in out.splitlines())
    assert first == second, said
    [found], expected = first["results"], cc.models.load(made).predict(str(picture), top=2)
    assert [each["label"] for each in found] == [each["label"] for each in expected]
    scores = [each["score"] for each in expected]  # of the level of this process, which may not be the bundle's
    assert [each["score"] for each in found] == pytest.approx(scores, abs=1e-6)
    assert missing["error"]["code"] == "E-IO-OPEN"


def network(folder):
    """A chain of scalar operators, whose kernel is generated."""
    names = ("Tanh", "Exp", "Neg", "Softsign")
    nodes = [helper.make_node(name, [f"v{at}"], [f"v{at + 1}"]) for at, name in enumerate(names)]
    request = {"op": "run", "inputs": {"v0": [[0.5, -1.0, 2.0]]}}
    path = save(folder / "chain.onnx", nodes, [value("v0")], [value("v4")])
    want = onnxruntime.InferenceSession(path).run(None, {"v0": np.array([[0.5, -1, 2]], np.float32)})[0]
    return path, request, lambda answer: np.array(answer["outputs"]["v4"]), want


def sentences(folder):
    text_checkpoints.checkpoint("BertModel", folder)
    want = cc.models.load(folder).embed(["the cat"])
    return folder, {"op": "embed", "inputs": ["the cat"]}, lambda answer: np.array(answer["vectors"]), want


def speech(folder):
    (folder / "whisper").mkdir()
    whisper(WHISPERS[0], 0, folder / "whisper")
    soundfile.write(folder / "tones.wav", tones(2), 16_000)
    request = {"op": "transcribe", "audio": str(folder / "tones.wav"), "temperature": 0.0, "beams": 1}
    want = cc.models.load(folder / "whisper").transcribe(folder / "tones.wav", temperature=0.0, beams=1).text
    assert want
    return folder / "whisper", request, lambda answer: answer["text"], want


@pytest.mark.sampled(3)
@pytest.mark.parametrize("builder", [network, sentences, speech])
def test_operations_where_nothing_can_be_written(builder, tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "app").mkdir()
    path, request, results, want = builder(tmp_path / "model")
    made = make_bundle(str(path), tmp_path / "app", requests=[request])
    assert request["op"] in made.operations
    out, said = _started(tmp_path / "app", tmp_path).communicate(json.dumps(request), timeout=600)
    found = results(json.loads(out))
    assert not said
    if isinstance(want, str):
        assert found == want
    else:
        np.testing.assert_allclose(found, want, atol=1e-6)


def test_an_address_that_cannot_be_used_gets_one_line(bundle, tmp_path):
    for port in ("99999", "203.0.113.1:80"):
        process = _started(bundle, tmp_path, "--http", port)
        said = process.communicate(timeout=60)[1]
        assert (said[:7], said.count("\n"), process.returncode) == ("✗ E-IO ", 1, 7)
    process = _started(bundle, tmp_path, "--https", "1")
    assert process.communicate(timeout=60)[1].startswith("usage:")
    assert process.returncode == 2


def test_a_processor_without_the_instructions_gets_one_line(bundle, tmp_path):
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in bundle.iterdir():
        (copy / path.name).symlink_to(path)
    (copy / "bundle.json").unlink()
    manifest = json.loads((bundle / "bundle.json").read_text())
    (copy / "bundle.json").write_text(json.dumps({**manifest, "variants": []}))
    process = _started(copy, tmp_path)
    out, said = process.communicate("", timeout=60)
    assert not out
    assert said.startswith("✗ E-BUNDLE-CPU")
    assert said.count("\n") == 1
    assert process.returncode == cc.UnsupportedError.exit_code


def test_the_best_variant_is_one_that_the_processor_can_run():
    assert best(isa.VARIANTS[:1]).name == "generic"
    assert best(isa.VARIANTS).features <= isa.present()


def test_existing_outputs_and_models_without_samples_are_refused(model, tmp_path, capsys):
    (tmp_path / "app").mkdir()
    assert run(["bundle", str(model), "-o", str(tmp_path / "app")]) == cc.UnsafeFileError.exit_code
    assert run(["bundle", str(model), "-o", str(tmp_path / "b"), "--cpu", "mips"]) == 2
    assert run(["bundle", str(model), "-o", str(tmp_path / "app"), "--force"]) == cc.UnsafeFileError.exit_code
    (tmp_path / "app" / "bundle.json").touch()
    (tmp_path / "app" / "m.gguf").symlink_to(model)
    copy = tmp_path / "app" / "copy.gguf"
    copy.write_bytes(model.read_bytes())
    assert run(["bundle", str(copy), "-o", str(tmp_path / "app"), "--force"]) == cc.UnsafeFileError.exit_code
    (tmp_path / "r.jsonl").write_text('{"op": "generate", "prompt": 3}\n')
    words = ["bundle", str(model), "-o", str(tmp_path / "b"), "--request", str(tmp_path / "r.jsonl")]
    assert run(words) == cc.UnsupportedError.exit_code
    assert "E-BUNDLE-SAMPLE" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["app"]

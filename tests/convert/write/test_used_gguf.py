"""GGUF files are used: every kind of source as a GGUF file gives the answer of its outside reference, in the command of
its task and in libllama if llama.cpp computes it; what a GGUF file cannot hold is reported."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import candle_convert as cc
import numpy as np
import pytest
import soundfile
import torch
import transformers
from candle_convert.convert.cli.main import run
from candle_convert.tests.builders import darknet_results, text_checkpoints, timm_outputs
from candle_convert.tests.builders.audio_networks import WAV2VEC2
from candle_convert.tests.builders.ctranslate2_files import ctranslate2_file
from candle_convert.tests.builders.image_checkpoints import image_model, images, saved
from candle_convert.tests.builders.mobilenet_v2 import mobilenet_v2
from candle_convert.tests.builders.speech_checkpoints import tones
from candle_convert.tests.builders.trained_tokenizers import byte_bpe
from candle_convert.tests.builders.used_sources import LABELS, VIT, add_letters, add_sentence_modules
from candle_convert.tests.builders.whisper_files import ctranslate2_variables, openai_names, published
from candle_convert.tests.oracles.libllama import NAME, Libllama
from candle_convert.tests.oracles.libllama_encoder import CLS, EncoderInLibllama
from candle_convert.tests.oracles.transformers import cases, difference, expected, made
from PIL import Image
from safetensors.numpy import load_file, save_file

FILES = ("config.json", "tokenizer.json", "preprocessor_config.json")
PICTURE, SOUND = "{picture}", "{sound}"
LIBLLAMA = 1e-3
"""libllama computes GELU by a table of f16."""


@dataclass(frozen=True)
class Source:
    """What is converted.

    Attributes:
        path: of the model.
        use: words of the command that uses it, with {model}, {picture} and {sound}.
        feeds, expected: arrays by name, from outside.
        library: checks a GGUF file in libllama; None for what llama.cpp does not compute.
        folder: what the command takes in place of the path, None for the path.
    """

    path: Path
    use: tuple[str, ...]
    feeds: dict
    expected: dict
    library: Callable[[Path], None] | None = None
    folder: Path | None = None


def _of_transformers(model, path, use, feeds, library=None):
    with torch.no_grad():
        found = model(**{name: torch.tensor(array) for name, array in feeds.items()})
    wanted = {name: value.numpy() for name, value in found.items() if name in ("logits", "last_hidden_state")}
    return Source(path, use, feeds, wanted, library)


def _llama(folder):
    (case,) = cases("LlamaForCausalLM", "llama", tiny={"vocab_size": 700, "eos_token_id": 2, "bos_token_id": 1})
    reference = made(case, 0, folder)
    byte_bpe(()).save(str(folder / "tokenizer.json"))
    ids = np.random.default_rng(0).integers(5, 700, (1, 20))
    logits = expected(reference, ids, None)

    def library(path):
        theirs = Libllama(path)
        found = np.stack([theirs.advance([token]) for token in ids[0]])[None]
        theirs.close()
        assert difference(found, logits) < LIBLLAMA

    use = ("generate", "{model}", "-p", "hello world", "-n", "8", "--temperature", "0")
    return reference, Source(folder, use, {"input_ids": ids}, {"logits": logits}, library)


def language(folder):
    """A decoder of transformers."""
    return _llama(folder)[1]


def language_shards(folder):
    """The first of the shards of a decoder, without their index."""
    reference, source = _llama(folder)
    stated = (folder / "config.json").read_bytes()
    (folder / "model.safetensors").unlink()
    reference.save_pretrained(folder, max_shard_size="100KB")
    (folder / "config.json").write_bytes(stated)
    (folder / "model.safetensors.index.json").unlink()
    first = min(folder.glob("model-00001-of-*.safetensors"))
    return Source(first, source.use, source.feeds, source.expected, source.library, folder)


def language_pickle(folder):
    """pytorch_model.bin of a decoder."""
    reference, source = _llama(folder)
    (folder / "model.safetensors").unlink()
    torch.save(reference.state_dict(), folder / "pytorch_model.bin")
    return source


def classes(folder):
    """Text classes."""
    model = text_checkpoints.checkpoint("BertForSequenceClassification", folder)
    return _of_transformers(model, folder, ("predict", "{model}", "hello world"), {"input_ids": np.arange(5, 14)[None]})


def sentences(folder):
    """Sentence embeddings, whose modules are in folders of their own."""
    model = text_checkpoints.checkpoint("BertModel", folder)
    add_sentence_modules(folder)
    ids = np.arange(5, 14)[None]
    with torch.no_grad():
        vector = model(input_ids=torch.tensor(ids)).last_hidden_state[0, 0].numpy()

    def library(path):
        theirs = EncoderInLibllama(path, CLS)
        found = theirs(ids[0])
        theirs.close()
        assert difference(found, vector) < LIBLLAMA

    use = ("embed", "{model}", "hello world", "a cat")
    return _of_transformers(model, folder, use, {"input_ids": ids}, library)


def vit(folder):
    """A thousand named labels."""
    names = {number: f"kind {number}" for number in range(LABELS)}
    model = image_model("ViTForImageClassification", **VIT, id2label=names)
    saved(model, folder)
    transformers.ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(folder)
    return _of_transformers(model, folder, ("predict", "{model}", PICTURE), {"pixel_values": images(1, 32, 32)})


def segments(folder):
    """Labels of pixels, more than 255."""
    settings = {
        "hidden_sizes": [8, 16, 24, 32], "num_attention_heads": [1, 2, 2, 4], "depths": [1, 1, 1, 1],
        "decoder_hidden_size": 16, "num_labels": 300,
    }  # fmt: skip
    model = image_model("SegformerForSemanticSegmentation", **settings)
    saved(model, folder)
    transformers.SegformerImageProcessor(size={"height": 64, "width": 64}).save_pretrained(folder)
    return _of_transformers(model, folder, ("predict", "{model}", PICTURE), {"pixel_values": images(1, 64, 64)})


def timm(folder):
    """timm's directory with names of labels."""
    case = timm_outputs.recorded()["resnet18"]
    stated = {"architecture": "resnet18", "num_classes": 5, "model_args": case["arguments"]}
    stated |= {"pretrained_cfg": {"input_size": [3, 64, 64]}, "label_names": list("abcde")}
    (folder / "config.json").write_text(json.dumps(stated))
    cc.save_file(timm_outputs.weights(case), folder / "model.safetensors")
    feeds = {"pixel_values": timm_outputs.pixels(*case["size"])}
    return Source(folder, ("predict", "{model}", PICTURE), feeds, {"logits": case["logits"]})


def wrapped(folder):
    """A checkpoint of a training run with DataParallel."""
    case = timm_outputs.recorded()["resnet18"]
    state = {f"module.{name}": torch.tensor(np.asarray(array)) for name, array in timm_outputs.weights(case).items()}
    torch.save({"state_dict": state, "epoch": 3}, folder / "checkpoint.pth")
    feeds = {"pixel_values": timm_outputs.pixels(*case["size"])}
    return Source(folder / "checkpoint.pth", (), feeds, {"logits": case["logits"]})


def torchvision(folder):
    """torchvision's weights: no file states the preparation of pictures."""
    model = mobilenet_v2(folder / "mobilenet.pth")
    pixels = images(1, 64, 64)
    with torch.no_grad():
        logits = model(torch.from_numpy(pixels)).numpy()
    return Source(folder / "mobilenet.pth", (), {"pixel_values": pixels}, {"logits": logits})


def darknet(folder):
    """Boxes."""
    (folder / "tiny.cfg").write_text(darknet_results.CFG)
    (folder / "tiny.names").write_text("cat\ndog\nbird\n")
    (folder / "tiny.weights").write_bytes(darknet_results.weights())
    found = darknet_results.recorded()[0]
    wanted = {"boxes_xywh": found[..., :4], "objectness_and_scores": found[..., 4:]}
    feeds = {"pixel_values": images(*darknet_results.SIZES[0])}
    return Source(folder / "tiny.weights", ("predict", "{model}", PICTURE), feeds, wanted)


def ctc(folder):
    """Letters for frames."""
    model = image_model("Wav2Vec2ForCTC", **WAV2VEC2)
    saved(model, folder)
    add_letters(folder)
    return _of_transformers(model, folder, ("transcribe", "{model}", SOUND), {"input_values": tones(1)[None]})


def _whisper(folder):
    reference = published(0, folder)
    features = np.random.default_rng(0).standard_normal((1, 80, 3000)).astype(np.float32)
    ids = np.arange(50258, 50264)[None]
    with torch.no_grad():
        logits = reference(input_features=torch.tensor(features), decoder_input_ids=torch.tensor(ids)).logits.numpy()
    use = ("transcribe", "{model}", SOUND, "--language", "en", "--temperature", "0")
    return reference, Source(folder, use, {"input_features": features, "decoder_input_ids": ids}, {"logits": logits})


def _placed(source, path):
    return Source(path, source.use, source.feeds, source.expected)


def whisper(folder):
    """Whisper of transformers."""
    return _whisper(folder)[1]


def whisper_openai(folder):
    """OpenAI's file of Whisper, and a tokenizer and configuration, which it lacks, beside it."""
    (folder / "hf").mkdir()
    reference, source = _whisper(folder / "hf")
    weights, dims = openai_names(reference)
    torch.save({"dims": dims, "model_state_dict": weights}, folder / "tiny.pt")
    for name in FILES:
        shutil.copy(folder / "hf" / name, folder)
    return _placed(source, folder / "tiny.pt")


def whisper_ctranslate2(folder):
    """CTranslate2's folder of Whisper."""
    (folder / "hf").mkdir()
    reference, source = _whisper(folder / "hf")
    (folder / "ct2").mkdir()
    (folder / "ct2" / "model.bin").write_bytes(ctranslate2_file(*ctranslate2_variables(reference, False)))
    for name in FILES[1:]:
        shutil.copy(folder / "hf" / name, folder / "ct2")
    lists = {"suppress_ids": [1, 2, 7], "suppress_ids_begin": [220], "alignment_heads": [[1, 0]], "lang_ids": [50259]}
    (folder / "ct2" / "config.json").write_text(json.dumps(lists))
    return _placed(source, folder / "ct2")


def whisper_cpp(folder):
    """whisper.cpp's file, which holds the tokenizer."""
    (folder / "hf").mkdir()
    source = _whisper(folder / "hf")[1]
    cc.convert(folder / "hf", folder / "ggml.whisper.bin", to="whisper", dtype="f32")
    return _placed(source, folder / "ggml.whisper.bin")


SOURCES = [
    language, language_shards, language_pickle, classes, sentences, vit, segments, timm, wrapped, torchvision, darknet,
    ctc, whisper, whisper_openai, whisper_ctranslate2, whisper_cpp,
]  # fmt: skip


@pytest.fixture(scope="module")
def media(tmp_path_factory):
    folder = tmp_path_factory.mktemp("media")
    pixels = np.random.default_rng(0).integers(0, 255, (90, 120, 3), np.uint8)
    Image.fromarray(pixels).save(folder / "p.png")
    soundfile.write(folder / "a.wav", tones(1), 16_000)
    return {"picture": str(folder / "p.png"), "sound": str(folder / "a.wav")}


def _answer(source, model, media, capsys):
    """What the command prints as JSON, without what names the model."""
    capsys.readouterr()
    code = run([*(word.format(model=model, **media) for word in source.use), "--threads", "1", "--json"])
    shown = capsys.readouterr()
    assert code == 0, shown.err + shown.out
    said = json.loads(shown.out)
    return next(said[key] for key in ("results", "vectors", "text") if key in said)


def _flat(value):
    """Numbers and texts in their order."""
    if isinstance(value, dict):
        return [each for key, inner in value.items() if key != "input" for each in _flat(inner)]
    return [each for inner in value for each in _flat(inner)] if isinstance(value, list) else [value]


def _assert_same(found, wanted):
    found, wanted = _flat(found), _flat(wanted)
    assert [each for each in found if isinstance(each, str)] == [each for each in wanted if isinstance(each, str)]
    numbers = [[each for each in side if isinstance(each, float | int)] for side in (found, wanted)]
    np.testing.assert_allclose(*numbers, atol=1e-3 * max(1, *map(abs, [0, *numbers[1]])))


@pytest.mark.parametrize("build", SOURCES)
def test_answers(build, media, tmp_path, capsys):
    (tmp_path / "source").mkdir()
    source, path = build(tmp_path / "source"), tmp_path / "model.gguf"
    assert run(["convert", str(source.path), str(path)]) == 0
    model = cc.models.load(path, threads=1)
    logits = {"logits": model.logits(source.feeds["input_ids"])} if build.__name__.startswith("language") else None
    found = logits or model(**source.feeds)
    for name, wanted in source.expected.items():
        assert difference(found[name], wanted) < 1e-4, name
    if source.use:
        wanted = _answer(source, source.folder or source.path, media, capsys)
        _assert_same(_answer(source, path, media, capsys), wanted)
    if source.library is not None and NAME:
        source.library(path)


def test_weights_of_nodes_are_no_model(tmp_path, capsys):
    """A network of nodes: its weights alone are written, and the command says that they cannot be run."""
    (tmp_path / "source").mkdir()
    assert run(["convert", str(vit(tmp_path / "source").path), str(tmp_path / "net"), "--to", "onnx", "-q"]) == 0
    network = str(tmp_path / "net")
    for words in (("net.gguf",), ("weights", "--to", "safetensors"), ("file.safetensors",), ("file.npz",)):
        capsys.readouterr()
        assert run(["convert", network, str(tmp_path / words[0]), *words[1:]]) == 0
        assert "the file cannot be run" in capsys.readouterr().err
    assert cc.load_file(tmp_path / "file.npz").keys() == cc.load_file(tmp_path / "net.gguf").keys()


def test_names_that_are_renamed_become_a_models(tmp_path):
    """--rename applies to the names of the input before its architecture is recognized."""
    source = _llama(tmp_path)[1]
    weights = load_file(tmp_path / "model.safetensors")
    save_file({f"net/{name.replace('self_attn', 'sa')}": array for name, array in weights.items()},
              tmp_path / "model.safetensors")  # fmt: skip
    words = ["--rename", "^net/=", "--rename", r"\.sa\.=.self_attn.", "--rename", r"^output\.weight$=output.weight"]
    assert run(["convert", str(tmp_path), str(tmp_path / "m.gguf"), *words]) == 0
    logits = cc.models.load(tmp_path / "m.gguf", threads=1).logits(source.feeds["input_ids"])
    assert difference(logits, source.expected["logits"]) < 1e-4

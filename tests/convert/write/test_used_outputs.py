"""Outputs are used: every kind of source as every kind of target computes what the outside reference of the source
computes, the command for the task gives the source's answer, and the tool that a target is for reads it."""

import json
from dataclasses import dataclass, field
from pathlib import Path

import candle_convert as cc
import numpy as np
import onnx
import onnxruntime
import pytest
import soundfile
import torch
import transformers
from candle_convert.convert.cli.main import run
from candle_convert.tests.builders import darknet_results, text_checkpoints, timm_outputs
from candle_convert.tests.builders.audio_networks import WAV2VEC2
from candle_convert.tests.builders.image_checkpoints import image_model, images, saved
from candle_convert.tests.builders.mobilenet_v2 import mobilenet_v2
from candle_convert.tests.builders.speech_checkpoints import tones
from candle_convert.tests.builders.used_sources import LABELS, VIT, add_letters, add_sentence_modules
from onnx import TensorProto, helper, numpy_helper
from PIL import Image
from safetensors.numpy import load_file, save_file

TARGETS = {
    "directory": ("dir", ("-t", "safetensors")),
    "pth directory": ("dir", ("-t", "pytorch")),
    "safetensors": ("m.safetensors", ()),
    "pth": ("m.pth", ()),
    "npz": ("m.npz", ()),
    "onnx": ("m.onnx", ()),
    "onnx directory": ("dir", ("-t", "onnx")),
    "variants": ("dir", ("-t", "onnx", "--dtypes", "f32,f16")),
}
"""Names of outputs, and options of `convert`."""
WEIGHTS = ("directory", "pth directory", "safetensors", "pth", "npz")
DIRECTORIES = {"directory": "model.safetensors", "pth directory": "pytorch_model.bin"}
PICTURE, SOUND = "{picture}", "{sound}"


@dataclass(frozen=True)
class Source:
    """A source.

    Attributes:
        path: what is converted.
        use: words of the command that uses it, with {model}, {picture} and {sound}.
        feeds, expected: arrays by name, from outside.
        options: of `convert`.
        outside: transformers' class of the directory, None where transformers does not have the names.
        nodes: whether it is a graph, which formats of weights drop.
    """

    path: Path
    use: tuple[str, ...]
    feeds: dict
    expected: dict
    options: tuple[str, ...] = ()
    outside: type | None = None
    nodes: bool = False
    tolerance: float = field(default=1e-4)


def _of_transformers(model, folder, use, feeds):
    with torch.no_grad():
        found = model(**{name: torch.tensor(array) for name, array in feeds.items()})
    expected = {name: value.numpy() for name, value in found.items() if name in ("logits", "last_hidden_state")}
    return Source(folder, use, feeds, expected, outside=type(model))


def vit(folder):
    """Safetensors of transformers with a thousand labels that it does not name."""
    model = image_model("ViTForImageClassification", **VIT, num_labels=LABELS)
    saved(model, folder)
    transformers.ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(folder)
    return _of_transformers(model, folder, ("predict", "{model}", PICTURE), {"pixel_values": images(1, 32, 32)})


def parallel(folder):
    """The same under names of DataParallel."""
    source = vit(folder)
    weights = load_file(folder / "model.safetensors")
    save_file({f"module.{name}": array for name, array in weights.items()}, folder / "model.safetensors")
    return source


def bert(folder):
    """Text classes."""
    model = text_checkpoints.checkpoint("BertForSequenceClassification", folder)
    feeds = {"input_ids": np.arange(5, 14)[None]}
    return _of_transformers(model, folder, ("predict", "{model}", "hello world"), feeds)


def sentences(folder):
    """Sentence embeddings, whose modules are in folders of their own."""
    model = text_checkpoints.checkpoint("BertModel", folder)
    add_sentence_modules(folder)
    feeds = {"input_ids": np.arange(5, 14)[None]}
    return _of_transformers(model, folder, ("embed", "{model}", "hello world", "a cat"), feeds)


def ctc(folder):
    """Letters for frames."""
    model = image_model("Wav2Vec2ForCTC", **WAV2VEC2)
    saved(model, folder)
    add_letters(folder)
    return _of_transformers(model, folder, ("transcribe", "{model}", SOUND), {"input_values": tones(1)[None]})


def timm(folder):
    """timm's directory."""
    case = timm_outputs.recorded()["resnet18"]
    stated = {"architecture": "resnet18", "num_classes": 5, "model_args": case["arguments"]}
    stated["pretrained_cfg"] = {"input_size": [3, 64, 64]}
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
    use = ("predict", "{model}", PICTURE, "--preprocessor", "imagenet")
    return Source(folder / "checkpoint.pth", use, feeds, {"logits": case["logits"]})


def renamed(folder):
    """Names that no library has, until they are renamed."""
    case = timm_outputs.recorded()["resnet18"]
    state = {f"net/{name}": torch.tensor(np.asarray(array)) for name, array in timm_outputs.weights(case).items()}
    torch.save(state, folder / "weights.pth")
    feeds = {"pixel_values": timm_outputs.pixels(*case["size"])}
    use = ("predict", "{model}", PICTURE, "--preprocessor", "imagenet")
    return Source(folder / "weights.pth", use, feeds, {"logits": case["logits"]}, ("--rename", "^net/="))


def torchvision(folder):
    """torchvision's weights with a thousand labels: no file states the labels or the preparation."""
    model = mobilenet_v2(folder / "mobilenet.pth", LABELS)
    pixels = images(1, 64, 64)
    with torch.no_grad():
        logits = model(torch.from_numpy(pixels)).numpy()
    return Source(
        folder / "mobilenet.pth", ("predict", "{model}", PICTURE), {"pixel_values": pixels}, {"logits": logits}
    )


def darknet(folder):
    """Boxes."""
    (folder / "tiny.cfg").write_text(darknet_results.CFG)
    (folder / "tiny.names").write_text("cat\ndog\nbird\n")
    (folder / "tiny.weights").write_bytes(darknet_results.weights())
    found = darknet_results.recorded()[0]
    expected = {"boxes_xywh": found[..., :4], "objectness_and_scores": found[..., 4:]}
    feeds = {"pixel_values": images(*darknet_results.SIZES[0])}
    return Source(folder / "tiny.weights", ("predict", "{model}", PICTURE), feeds, expected)


def network(folder):
    """A graph whose names tell no task."""
    rng = np.random.default_rng(0)
    arrays = {"W": rng.standard_normal((8, 3, 3, 3)), "F": rng.standard_normal((8, LABELS))}
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["input", "W"], ["c"], pads=[1] * 4),
            helper.make_node("Relu", ["c"], ["r"]),
            helper.make_node("GlobalAveragePool", ["r"], ["g"]),
            helper.make_node("Flatten", ["g"], ["f"]),
            helper.make_node("MatMul", ["f", "F"], ["output"]),
        ],
        "net",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["n", 3, 48, 48])],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, ["n", LABELS])],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in arrays.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), folder / "net.onnx")
    feeds = {"input": images(1, 48, 48)}
    (expected,) = onnxruntime.InferenceSession(folder / "net.onnx").run(None, feeds)
    use = ("predict", "{model}", PICTURE, "--task", "image-classification")
    return Source(folder / "net.onnx", use, feeds, {"output": expected}, nodes=True)


SOURCES = [vit, parallel, bert, sentences, ctc, timm, wrapped, renamed, torchvision, darknet, network]


@pytest.fixture(scope="module")
def source_of(tmp_path_factory):
    made = {}
    media = tmp_path_factory.mktemp("media")
    pixels = np.random.default_rng(0).integers(0, 255, (90, 120, 3), np.uint8)
    Image.fromarray(pixels).save(media / "p.png")
    soundfile.write(media / "a.wav", tones(1), 16_000)

    def source(build):
        if build not in made:
            folder = tmp_path_factory.mktemp(build.__name__)
            made[build] = build(folder)
        return made[build], {"picture": str(media / "p.png"), "sound": str(media / "a.wav")}

    return source


def answer(source, model, media, capsys):
    """What the command prints as JSON, without what names the model."""
    capsys.readouterr()
    code = run([*(word.format(model=model, **media) for word in source.use), "--json"])
    shown = capsys.readouterr()
    assert code == 0, shown.err + shown.out
    found = json.loads(shown.out)
    return found.get("results", found.get("vectors"))


def flat(value):
    """Numbers and texts in their order."""
    if isinstance(value, dict):
        return [each for key, inner in value.items() if key != "input" for each in flat(inner)]
    return [each for inner in value for each in flat(inner)] if isinstance(value, list) else [value]


def same(found, wanted, tolerance):
    """Whether answers are equal, with numbers within a tolerance of the largest."""
    found, wanted = flat(found), flat(wanted)
    assert [each for each in found if isinstance(each, str)] == [each for each in wanted if isinstance(each, str)]
    numbers = [[each for each in side if isinstance(each, float | int)] for side in (found, wanted)]
    np.testing.assert_allclose(*numbers, atol=tolerance * max(1, *map(abs, numbers[1])))


def compared(found, source, tolerance):
    for name, expected in source.expected.items():
        assert np.abs(found[name] - expected).max() <= tolerance * np.abs(expected).max(), name


def in_onnxruntime(path, source, tolerance):
    session = onnxruntime.InferenceSession(path)
    wanted = {item.name for item in session.get_inputs()}
    feeds = {name: array for name, array in source.feeds.items() if name in wanted}
    ids = feeds.get("input_ids")
    fixed = {} if ids is None else {"attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
    feeds |= {name: fixed[name] for name in wanted - feeds.keys()}
    names = [item.name for item in session.get_outputs()]
    assert all(item.type != "tensor(float16)" for item in (*session.get_inputs(), *session.get_outputs()))
    compared(dict(zip(names, session.run(None, feeds), strict=True)), source, tolerance)


def in_libraries(path, kind):
    """The names and values of weights as the format's own library reads them."""
    path = path / DIRECTORIES[kind] if kind in DIRECTORIES else path
    if kind.startswith("pth"):
        return {name: np.asarray(tensor) for name, tensor in torch.load(path, weights_only=True).items()}
    if kind == "npz":
        with np.load(path) as held:
            return {name: array for name in held.files if isinstance(array := held[name], np.ndarray)}
    return load_file(path)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", TARGETS)
@pytest.mark.parametrize("build", SOURCES)
def test_outputs_are_used(build, kind, source_of, tmp_path, capsys):
    source, media = source_of(build)
    name, options = TARGETS[kind]
    out = tmp_path / name
    assert run(["convert", str(source.path), str(out), *options, *source.options]) == 0
    said = capsys.readouterr().err
    if source.nodes and kind in WEIGHTS:
        assert "nodes are dropped" in said
        assert in_libraries(out, kind).keys() == {"W", "F"}
        return
    given = source.path if not source.options else timm(_folder(tmp_path)).path
    same(answer(source, out, media, capsys), answer(source, given, media, capsys), 1e-3)
    if kind in WEIGHTS:
        if not source.nodes:
            compared(cc.models.load(out)(**source.feeds), source, source.tolerance)
        assert in_libraries(out, kind)
        if kind in DIRECTORIES and source.outside is not None:
            model = source.outside.from_pretrained(out).eval()
            with torch.no_grad():
                found = model(**{name: torch.tensor(array) for name, array in source.feeds.items()})
            compared({name: value.numpy() for name, value in found.items() if name in source.expected}, source, 1e-6)
        return
    paths = [out] if out.is_file() else sorted(out.rglob("*.onnx"))
    assert len(paths) == (2 if kind == "variants" else 1)
    for path in paths:
        in_onnxruntime(path, source, 0.02 if path.stem.endswith("fp16") else source.tolerance)


def _folder(tmp_path):
    folder = tmp_path / "named"
    folder.mkdir()
    return folder


def test_a_model_of_several_graphs_is_refused_as_one_file(tmp_path, capsys):
    from candle_convert.tests.builders.encoder_decoder_cases import ENCODER_DECODERS
    from candle_convert.tests.oracles.transformers import made

    made(ENCODER_DECODERS[0], 0, tmp_path / "t5")
    assert run(["convert", str(tmp_path / "t5"), str(tmp_path / "m.onnx")]) == 2
    assert "Choose a directory" in capsys.readouterr().err
    assert not (tmp_path / "m.onnx").exists()

"""ColPali against transformers: prompts, vectors of tokens, MaxSim, names of weights, exported graphs, bad input."""

import json
import shutil

import candle_convert as cc
import numpy as np
import onnxruntime
import pytest
import torch
from candle_convert.convert.cli.main import run
from candle_convert.tests.builders.colpali import colpali_folder
from PIL import Image
from safetensors.numpy import load_file, save_file
from safetensors.torch import load_file as torch_file

TOLERANCE = 3e-5
QUERIES = ["two dogs", "what is this? a cat on a mat."]
LETTERS = "abc"


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    """The model and the processor in transformers, and the directory."""
    folder = tmp_path_factory.mktemp("colpali")
    return *colpali_folder(folder), folder


@pytest.fixture(scope="module")
def loaded(case):
    return cc.models.load(case[2], threads=1, activations="f32")


def paths(folder):
    return [str(folder / f"{letter}.png") for letter in LETTERS]


def processed(case, queries=None):
    """transformers' arrays of queries, or of the pages."""
    _, processor, folder = case
    if queries is not None:
        return processor.process_queries(queries)
    return processor.process_images([Image.open(path) for path in paths(folder)])


def matrices(case, inputs):
    """transformers' vectors of the tokens of each input."""
    arrays = {name: array for name, array in inputs.items() if name != "labels"}
    with torch.no_grad():
        found = case[0](**arrays).embeddings
    return [row[mask != 0] for row, mask in zip(found, inputs["attention_mask"], strict=True)]


def close(found, want):
    return found.shape == want.shape and np.abs(found - want.numpy()).max() <= TOLERANCE


def test_prompts(case, loaded):
    pages, queries = processed(case), processed(case, QUERIES)
    for row, path in enumerate(paths(case[2])):
        found = loaded.prompted(path, page=True)
        assert found.ids == pages["input_ids"][row].tolist()
        assert found.arrays["token_type_ids"][0].tolist() == pages["token_type_ids"][row].tolist()
        assert np.abs(found.arrays["pixel_values"][0] - pages["pixel_values"][row].numpy()).max() <= 2 / 255
    for row, query in enumerate(QUERIES):
        kept = queries["attention_mask"][row] != 0
        assert loaded.prompted(query).ids == queries["input_ids"][row][kept].tolist()


def test_vectors_of_pages_and_queries(case, loaded):
    want = matrices(case, processed(case)) + matrices(case, processed(case, QUERIES))
    told = []
    found = loaded.embed(images=paths(case[2]), progress=lambda *numbers: told.append(numbers))
    found += loaded.embed(QUERIES)
    assert all(close(ours, theirs) for ours, theirs in zip(found, want, strict=True))
    assert {vectors.shape[1:] for vectors in found} == {(24,)}
    assert told[-1] == (3, 3)
    mixed = loaded.embed([QUERIES[0], case[2] / "b.png", Image.open(case[2] / "a.png")], batch=2)
    assert all(close(ours, theirs) for ours, theirs in zip(mixed, (want[3], want[1], want[0]), strict=True))
    assert close(loaded.embed(QUERIES[1]), want[4])
    assert close(loaded.embed(images=paths(case[2])[2]), want[2])
    assert loaded.embed([]) == []


def test_a_run_on_arrays(case, loaded):
    """As of a padded batch, whose padding has zeros."""
    inputs = processed(case, QUERIES)
    assert 0 in inputs["attention_mask"]
    for arrays in (inputs, processed(case)):
        given = {name: array.numpy() for name, array in arrays.items() if name != "labels"}
        with torch.no_grad():
            want = case[0](**{name: torch.tensor(array) for name, array in given.items()}).embeddings
        assert close(loaded(**given)["embeddings"], want)


def test_max_similarity(case, loaded):
    want = case[1].score_retrieval(matrices(case, processed(case, QUERIES)), matrices(case, processed(case)))
    for query, scores in zip(QUERIES, want.tolist(), strict=True):
        found = loaded.rerank(query, paths(case[2]))
        order = sorted(range(3), key=lambda page: -scores[page])
        assert [page["index"] for page in found] == order
        assert [page["text"] for page in found] == [paths(case[2])[page] for page in order]
        assert np.allclose([page["score"] for page in found], [scores[page] for page in order], atol=1e-4)
        (best,) = loaded.rerank(query, paths(case[2]), top=1, batch=2)
        assert best["index"] == order[0]
    pages = [(case[2] / "a.png").read_bytes(), Image.open(case[2] / "b.png")]
    assert {page["text"] for page in loaded.rerank("dogs", pages)} == {""}
    assert loaded.rerank("dogs", []) == []


def test_the_commands(case, loaded, tmp_path, capsys):
    folder = case[2]
    want = loaded.rerank(QUERIES[0], paths(folder))
    assert run(["rerank", str(folder), "--query", QUERIES[0], *paths(folder), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["documents"]
    assert [page["text"] for page in found] == [page["text"] for page in want]
    assert np.allclose([page["score"] for page in found], [page["score"] for page in want], atol=1e-4)
    vectors = [*loaded.embed(images=paths(folder)[:1]), *loaded.embed(QUERIES[:1])]
    inputs = [str(folder), paths(folder)[0], QUERIES[0]]
    for suffix in (".npz", ".safetensors"):
        output = tmp_path / f"vectors{suffix}"
        assert run(["embed", *inputs, "-o", str(output)]) == 0
        assert "2 matrices of 24" in capsys.readouterr().out
        arrays = load_file(output) if suffix == ".safetensors" else np.load(output)
        assert all(np.allclose(arrays[f"vectors.{i}"], vectors[i], atol=1e-6) for i in range(2))
    assert run(["embed", *inputs]) == 0
    lines = [np.array(json.loads(line)) for line in capsys.readouterr().out.splitlines()]
    assert all(np.allclose(line, matrix, atol=1e-6) for line, matrix in zip(lines, vectors, strict=True))


def test_a_written_directory_is_the_same_model(case, loaded, tmp_path):
    cc.convert(case[2], tmp_path / "copy", to="safetensors", dtype="f32")
    assert cc.open(tmp_path / "copy").weights.keys() == cc.open(case[2]).weights.keys()
    copy = cc.models.load(tmp_path / "copy", threads=1, activations="f32")
    assert np.array_equal(copy.embed(QUERIES[0]), loaded.embed(QUERIES[0]))


NAMES = {
    "nested": ("vlm.vision_tower.", "vlm.vision_tower.vision_model.", "vlm.language_model.model."),
    "transformers 4.52": ("vlm.model.vision_tower.", "vlm.model.vision_tower.", "vlm.model.language_model."),
    "transformers 5": ("vlm.vision_tower.", "vlm.vision_tower.", "vlm.language_model."),
}


def plain(name):
    """The name of a weight in transformers' class."""
    return name.replace("vision_tower.vision_model.", "vision_tower.").replace(
        "language_model.model.", "language_model."
    )


@pytest.mark.parametrize("names", NAMES)
def test_names_of_weights(case, loaded, tmp_path, names):
    folder = tmp_path / "model"
    shutil.copytree(case[2], folder)
    _, vision, language = NAMES[names]
    outer = "vlm.model." if vision.startswith("vlm.model.") else "vlm."
    arrays = {}
    for name, array in load_file(folder / "model.safetensors").items():
        spelled = plain(name).replace("vlm.vision_tower.", vision).replace("vlm.language_model.", language)
        arrays[spelled.replace("vlm.multi_modal", f"{outer}multi_modal")] = array
    check_same_model(folder, arrays, loaded, tmp_path / "copy")


def check_same_model(folder, arrays, loaded, copy):
    """A folder with weights of other names is the same model, and keeps the names when it is copied."""
    save_file(arrays, folder / "model.safetensors")
    found = cc.models.load(folder, threads=1, activations="f32")
    assert np.array_equal(found.embed(QUERIES[0]), loaded.embed(QUERIES[0]))
    path = paths(folder)[0]
    assert np.array_equal(found.embed(images=path), loaded.embed(images=path))
    cc.convert(folder, copy, to="safetensors")
    assert cc.open(copy).weights.keys() == arrays.keys()


def test_files_of_colpali_engine(case, loaded, tmp_path):
    """As the authors' own repositories have them: PaliGemma's configuration, and other names of weights."""
    folder = tmp_path / "model"
    shutil.copytree(case[2], folder)
    config = json.loads((folder / "config.json").read_text())
    inner = {**config["vlm_config"], "architectures": ["ColPali"], "model_type": "paligemma"}
    (folder / "config.json").write_text(json.dumps(inner))
    arrays = {}
    for name, array in load_file(folder / "model.safetensors").items():
        spelled = plain(name).replace("vlm.language_model.", "model.language_model.model.")
        spelled = spelled.replace("vlm.vision_tower.", "model.vision_tower.vision_model.")
        spelled = spelled.replace("embedding_proj_layer", "custom_text_proj").replace("vlm.multi", "model.multi")
        arrays[spelled] = array
    check_same_model(folder, arrays, loaded, tmp_path / "copy")


def test_exported_graphs(case, loaded, tmp_path):
    """onnxruntime runs each, and the folder is the same model."""
    cc.convert(case[2], tmp_path / "onnx", to="onnx")
    inputs = processed(case)
    want = matrices(case, inputs)
    run = {
        name: onnxruntime.InferenceSession(tmp_path / "onnx" / f"{name}.onnx", providers=["CPUExecutionProvider"])
        for name in ("vision_encoder", "embed_tokens", "decoder_model_merged")
    }
    ids, pixels = inputs["input_ids"].numpy(), inputs["pixel_values"].numpy()
    (embeds,) = run["embed_tokens"].run(["inputs_embeds"], {"input_ids": ids})
    (features,) = run["vision_encoder"].run(["image_features"], {"pixel_values": pixels})
    embeds[ids == loaded.options.config.image_token] = features.reshape(-1, features.shape[-1])
    feeds = {"inputs_embeds": embeds, "attention_mask": np.full_like(ids, 2)}
    for value in run["decoder_model_merged"].get_inputs():
        if value.name.startswith("past"):
            feeds[value.name] = np.zeros([len(ids), value.shape[1], 0, value.shape[3]], np.float32)
        elif value.name == "position_ids":
            feeds[value.name] = np.repeat(np.arange(ids.shape[1])[None], len(ids), 0)
    (found,) = run["decoder_model_merged"].run(["embeddings"], feeds)
    assert all(close(ours, theirs) for ours, theirs in zip(found, want, strict=True))
    again = cc.models.load(tmp_path / "onnx", threads=1, activations="f32")
    assert all(map(close, again.embed(images=paths(case[2])), want))
    assert again.rerank(QUERIES[0], paths(case[2]))[0]["index"] == loaded.rerank(QUERIES[0], paths(case[2]))[0]["index"]


def test_quantized_weights(case, loaded, tmp_path):
    cc.convert(case[2], tmp_path / "half", to="safetensors", dtype="f16")
    assert torch_file(tmp_path / "half" / "model.safetensors")["embedding_proj_layer.weight"].dtype == torch.float16
    copy = cc.models.load(tmp_path / "half", threads=1, activations="f32")
    (found,), (want,) = copy.embed(QUERIES[:1]), loaded.embed(QUERIES[:1])
    assert (found * want).sum(1).min() > 0.999


def test_prompts_of_the_files(case, loaded, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(case[2], folder)
    settings = {"query_prefix": "Query: ", "visual_prompt_prefix": "describe"}
    (folder / "processor_config.json").write_text(json.dumps(settings))
    found = cc.models.load(folder, threads=1)
    tokenizer = found.tokenizer
    assert tokenizer.decode(found.prompted("dogs").ids).startswith("Query: dogs")
    assert tokenizer.decode(found.prompted(paths(folder)[0], page=True).ids).endswith("describe\n")
    (folder / "processor_config.json").write_text(json.dumps({"query_prefix": 5}))
    with pytest.raises(cc.FormatError, match=r"invalid parameter query_prefix in processor_config\.json"):
        cc.models.load(folder, threads=1).embed("dogs")


def test_bad_input(case, loaded, tmp_path, capsys):
    folder = case[2]
    for options, why in (
        ({}, "embed takes queries and pages, or images"), ({"inputs": "a", "images": "b"}, "embed takes queries"),
        ({"inputs": "a <image> b"}, r"E-LM-PLACEHOLDER.*no picture"), ({"inputs": [3]}, "not a picture"),
    ):  # fmt: skip
        with pytest.raises(cc.UsageError, match=why):
            loaded.embed(**options)
    with pytest.raises(cc.UsageError, match="take no instruction"):
        loaded.rerank("dogs", paths(folder), instruction="find")
    with pytest.raises(cc.UsageError, match="cannot generate"):
        loaded.generate("dogs")
    (tmp_path / "text.png").write_text("no picture")
    missing, damaged = str(tmp_path / "missing.png"), str(tmp_path / "text.png")
    page = paths(folder)[0]
    for arguments, code, why in (
        (["rerank", "--query", "dogs", missing], 7, "cannot be read"),
        (["rerank", "--query", "dogs", damaged], 3, "text.png"),
        (["embed", page, "-o", str(tmp_path / "a.npy")], 2, "Use .npz"),
        (["embed", page, "dogs", "--similarity"], 2, "candle-convert rerank"),
        (["embed", page, "--pooling", "cls"], 2, "no option --pooling"), (["predict", page], 2, "cannot predict"),
        (["generate", "-p", "dogs"], 2, "do not generate text"),
    ):  # fmt: skip
        assert run([arguments[0], str(folder), *arguments[1:]]) == code, arguments
        lines = capsys.readouterr().err.splitlines()
        assert why in lines[-1], lines
    assert not (tmp_path / "a.npy").exists()


def test_a_projection_of_another_width(case, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(case[2], folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "embedding_dim": 128}))
    with pytest.raises(cc.FormatError, match=r"embedding_proj_layer"):
        cc.models.load(folder)
    (folder / "config.json").write_text(json.dumps({**config, "embedding_dim": 0}))
    with pytest.raises(cc.FormatError, match="embedding_dim"):
        cc.models.load(folder)

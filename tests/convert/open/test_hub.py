"""hf:// addresses against a cache of huggingface_hub's that the test lays out by hand, and against a stub of
the hub; no network."""

import hashlib
import json
import os
import subprocess
import sys

import candle_convert as cc
import numpy as np
import pytest
from candle_convert.convert.open import hub
from candle_convert.convert.open.model_files import needed_files
from candle_convert.tests.builders.hub_server import hub_server
from candle_convert.tests.builders.vision_language import vision_language_folder
from safetensors.numpy import save

MAIN, OLD = "1" * 40, "2" * 40
REPO = "models--own.er--re-po_1"


def _shard(number):
    return f"model-{number:05d}-of-00002.safetensors"


def _weights(value):
    return save({"w": np.full(3, value, np.float32)})


SHARDS = {_shard(number): save({f"w{number}": np.full(2, number, np.float32)}) for number in (1, 2)}
INDEX = {
    "model.safetensors.index.json": json.dumps(
        {"weight_map": {f"w{number}": _shard(number) for number in (1, 2)}}
    ).encode()
}
TEXTS = {"config.json": b'{"model_type": "none"}', "tokenizer.json": b"{}"}
SNAPSHOTS = {
    (REPO, MAIN): {"model.safetensors": _weights(7), **TEXTS},
    (REPO, OLD): {"model.safetensors": _weights(5)},
    ("models--own.er--sharded", MAIN): {**SHARDS, **INDEX, **TEXTS},
    ("models--own.er--half", MAIN): {_shard(1): SHARDS[_shard(1)], **INDEX},
    ("models--own.er--texts", MAIN): TEXTS,
}


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """HF_HOME with a cache: blobs named by their hash, snapshots of links to them, refs."""
    cache = tmp_path_factory.mktemp("cache")
    for (repo, revision), files in SNAPSHOTS.items():
        root = cache / "hub" / repo
        for folder in ("blobs", "refs", f"snapshots/{revision}"):
            (root / folder).mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            blob = hashlib.sha256(data).hexdigest()
            (root / "blobs" / blob).write_bytes(data)
            (root / "snapshots" / revision / name).symlink_to(f"../../blobs/{blob}")
        if revision == MAIN:
            (root / "refs" / "main").write_text(revision)
    (cache / "hub" / REPO / "refs" / "v1.0").write_text(OLD)
    return cache


def run(cache, *words, variable="HF_HOME", **more):
    """A command of ours with that cache, in a process of its own, since huggingface_hub reads the environment when it
    is loaded."""
    keep = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    place = cache if variable == "HF_HOME" else cache / "hub"
    command = [sys.executable, "-m", "candle_convert.convert", *map(str, words), "--json"]
    done = subprocess.run(command, env={**keep, variable: str(place), **more}, capture_output=True, text=True)
    return done.returncode, json.loads(done.stdout)


OPENED = [
    ("repository", "hf://own.er/re-po_1", [], 7),
    ("file", "hf://own.er/re-po_1/model.safetensors", [], 7),
    ("tag", "hf://own.er/re-po_1@v1.0", [], 5),
    ("commit", f"hf://own.er/re-po_1@{OLD}/model.safetensors", [], 5),
    ("revision-option", "hf://own.er/re-po_1", ["--revision", "v1.0"], 5),
    ("address-before-option", "hf://own.er/re-po_1@main", ["--revision", "v1.0"], 7),
]


@pytest.mark.parametrize(("name", "uri", "options", "value"), OPENED, ids=[row[0] for row in OPENED])
def test_a_cached_model_is_found_without_a_network(name, uri, options, value, cache, tmp_path):
    code, answer = run(cache, "convert", uri, tmp_path / "out.safetensors", "--offline", *options)
    assert code == 0, answer
    assert cc.open(tmp_path / "out.safetensors")["w"].numpy().tolist() == [value] * 3


@pytest.mark.parametrize("variable", ["HF_HOME", "HF_HUB_CACHE"])
def test_the_environment_names_the_cache_and_switches_the_network_off(variable, cache, tmp_path):
    code, answer = run(
        cache,
        "convert",
        "hf://own.er/re-po_1",
        tmp_path / "out",
        "-t",
        "safetensors",
        variable=variable,
        HF_HUB_OFFLINE="1",
    )
    assert code == 0, answer
    assert sorted(os.listdir(tmp_path / "out")) == ["config.json", "model.safetensors", "tokenizer.json"]
    assert (tmp_path / "out" / "config.json").read_bytes() == TEXTS["config.json"]
    assert not (tmp_path / "out" / "model.safetensors").is_symlink()


@pytest.mark.parametrize("file", ["", "/model.safetensors.index.json"])
def test_shards_are_found_with_their_index(file, cache, tmp_path):
    code, answer = run(cache, "convert", f"hf://own.er/sharded{file}", tmp_path / "out.npz", "--offline")
    assert code == 0, answer
    assert set(cc.open(tmp_path / "out.npz")) == {"w1", "w2"}


MISSING = [
    ("repository", "hf://own.er/nothing", [], "E-HUB-FETCH"),
    ("file", "hf://own.er/re-po_1/other.safetensors", [], "E-HUB-FETCH"),
    ("revision", "hf://own.er/re-po_1@v2", [], "E-HUB-FETCH"),
    ("revision-option", "hf://own.er/re-po_1", ["--revision", "3" * 40], "E-HUB-FETCH"),
    ("shard", "hf://own.er/half", [], "E-SHARD-MISSING"),
]


@pytest.mark.parametrize(("name", "uri", "options", "code"), MISSING, ids=[row[0] for row in MISSING])
def test_what_is_not_cached_is_exit_7_with_a_hint(name, uri, options, code, cache):
    exit_code, answer = run(cache, "inspect", uri, "--offline", *options)
    assert (exit_code, answer["error"]["code"]) == (7, code), answer
    assert "ownload" in answer["error"]["hint"]


def test_a_repository_whose_weights_are_not_cached(cache):
    exit_code, answer = run(cache, "inspect", "hf://own.er/texts", "--offline")
    assert (exit_code, answer["error"]["code"]) == (7, "E-HUB-FETCH"), answer


@pytest.mark.parametrize(
    "uri",
    [
        "hf://",
        "hf://one",
        "hf://a/b/",
        "hf://a/b@",
        "hf://a b/c",
        "hf://a/b/../../../etc/passwd",
        "hf:///a/b",
        "hf://a/..b/@/x\n",
    ],
)
def test_addresses_that_are_none(uri):
    with pytest.raises((cc.UsageError, cc.FileAccessError)) as caught:
        hub.resolve(uri, offline=True)
    assert caught.value.hint


SIBLINGS = [
    ("model.safetensors.index.json", "model-*.safetensors"),
    ("sub/pytorch_model.bin.index.json", "sub/pytorch_model-*.bin"),
    ("q8-00001-of-00003.gguf", "q8-*-of-00003.gguf"),
]


@pytest.mark.parametrize(("file", "pattern"), SIBLINGS)
def test_what_is_fetched_with_a_file(file, pattern):
    assert hub._siblings(file) == pattern


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """llama.cpp's two files of a small SmolVLM, and what the model says about a picture: the files' bytes, words of the
    command, its text."""
    folder = tmp_path_factory.mktemp("pair")
    (folder / "hf").mkdir()
    vision_language_folder("smolvlm", folder / "hf")
    cc.convert(folder / "hf", folder / "m.gguf")
    prompt = ["-p", "what is this?", "-n", "4", "--temp", "0", "--image", folder / "hf" / "a.png"]
    code, answer = run(folder, "generate", folder / "m.gguf", *prompt)
    assert code == 0, answer
    return (folder / "m.gguf").read_bytes(), (folder / "mmproj-m.gguf").read_bytes(), prompt, answer["text"]


LISTINGS = [
    ("only", ["m-Q8_0.gguf", "mmproj-model-f16.gguf", "README.md"], "mmproj-model-f16.gguf"),
    ("same-name", ["m-Q8_0.gguf", "mmproj-m-Q8_0.gguf", "mmproj-other.gguf"], "mmproj-m-Q8_0.gguf"),
    ("variants", ["m-Q8_0.gguf", "m-Q4_K_M.gguf", "mmproj-BF16.gguf", "mmproj-F16.gguf"], "mmproj-F16.gguf"),
    ("folder", ["q/m-Q8_0.gguf", "q/mmproj-F16.gguf", "mmproj-F32.gguf"], "q/mmproj-F16.gguf"),
    ("shards", ["m-00001-of-00001.gguf", "mmproj-m.gguf"], "mmproj-m.gguf"),
    ("two-models", ["m-Q8_0.gguf", "mmproj-one.gguf", "mmproj-two.gguf"], None),
    ("text", ["m-Q8_0.gguf", "other.gguf"], None),
]


@pytest.mark.parametrize(("name", "files", "expected"), LISTINGS, ids=[row[0] for row in LISTINGS])
def test_the_encoder_is_fetched_with_its_language_model(name, files, expected, pair, tmp_path):
    model, encoder, prompt, text = pair
    held = {file: encoder if "mmproj" in file else model for file in files}
    with hub_server({"own.er/vlm": held}) as (address, fetched):
        code, answer = run(tmp_path, "generate", f"hf://own.er/vlm/{files[0]}", *prompt, HF_ENDPOINT=address)
    assert fetched == [files[0], *([] if expected is None else [expected])]
    assert (code == 0) == (expected is not None), answer
    if expected is not None:
        assert answer["text"] == text
    if name in ("folder", "shards"):
        code, again = run(tmp_path, "generate", f"hf://own.er/vlm/{files[0]}", *prompt, "--offline")
        assert (code, again["text"]) == (0, text)


def test_the_encoder_is_not_fetched_where_one_is_given(pair, tmp_path):
    model, encoder, prompt, text = pair
    mine = tmp_path / "my.gguf"
    mine.write_bytes(encoder)
    with hub_server({"own.er/vlm": {"m.gguf": model, "mmproj-m.gguf": encoder}}) as (address, fetched):
        uri = "hf://own.er/vlm/m.gguf"
        code, answer = run(tmp_path, "generate", uri, "--mmproj", mine, *prompt, HF_ENDPOINT=address)
    assert (code, answer["text"]) == (0, text), answer
    assert fetched == ["m.gguf"]


def test_files_next_to_an_address_where_the_client_is_offline(monkeypatch):
    """`HF_HUB_OFFLINE` is in each release; `is_offline_mode` came with 1.0."""
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.delattr(constants, "is_offline_mode", raising=False)
    assert hub.folder_files("hf://own.er/re-po_1/model.safetensors") == {}


def test_what_reads_one_file_fetches_one(pair, tmp_path):
    model, encoder, *_ = pair
    with hub_server({"own.er/vlm": {"m.gguf": model, "mmproj-m.gguf": encoder}}) as (address, fetched):
        code, _ = run(tmp_path, "scan", "hf://own.er/vlm/m.gguf", HF_ENDPOINT=address)
    assert code == 0
    assert fetched == ["m.gguf"]


def test_an_encoder_that_cannot_be_fetched(pair, tmp_path):
    """It is listed, but a download fails; exit 7, as of a model."""
    model, *_ = pair
    with hub_server({"own.er/vlm": {"m.gguf": model, "mmproj-m.gguf": None}}) as (address, _):
        uri = "hf://own.er/vlm/m.gguf"
        code, answer = run(tmp_path, "convert", uri, tmp_path / "out", "-t", "safetensors", HF_ENDPOINT=address)
    assert (code, answer["error"]["code"]) == (7, "E-HUB-FETCH")
    assert "mmproj-m.gguf" in answer["error"]["message"]


def test_a_cached_model_whose_repository_cannot_be_listed(pair, tmp_path):
    model, encoder, *_ = pair
    uri, target = "hf://own.er/vlm/m.gguf", tmp_path / "out"
    with hub_server({"own.er/vlm": {"m.gguf": model, "mmproj-m.gguf": encoder}}) as (address, _):
        assert run(tmp_path, "scan", uri, HF_ENDPOINT=address)[0] == 0
    code, answer = run(tmp_path, "convert", uri, target, "-t", "safetensors", HF_ENDPOINT=address)
    assert code == 0, answer
    assert "W-HUB-MMPROJ" in [warning["code"] for warning in answer["warnings"]]


def test_a_pipeline_is_fetched_without_copies_of_its_weights(tmp_path):
    """One copy of each part that is run, and then the cache alone."""
    pytest.importorskip("diffusers")
    from candle_convert.tests.builders.text_to_image import stable_diffusion

    folder = tmp_path / "sd"
    stable_diffusion(folder)
    index = json.loads((folder / "model_index.json").read_text())
    index["safety_checker"] = ["stable_diffusion", "StableDiffusionSafetyChecker"]
    (folder / "model_index.json").write_text(json.dumps(index))
    held = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    copies = [
        "sd-pruned.safetensors", "sd-pruned.ckpt", "unet/diffusion_pytorch_model.fp16.safetensors",
        "unet/diffusion_pytorch_model.bin", "vae/diffusion_pytorch_model.non_ema.safetensors",
        "text_encoder/model.onnx", "safety_checker/model.safetensors", "onnx/unet/model.onnx",
    ]  # fmt: skip
    words = ["draw", "hf://own.er/sd", "-p", "a fox", "--steps", "1", "--seed", "3", "--size", "32x32", "-o"]
    with hub_server({"own.er/sd": {**held, **dict.fromkeys(copies, b"copy")}}) as (address, fetched):
        code, answer = run(tmp_path, *words, tmp_path / "first.png", HF_ENDPOINT=address)
    assert code == 0, answer
    assert sorted(fetched) == sorted(held)
    code, answer = run(tmp_path, *words, tmp_path / "again.png", "--offline")
    assert code == 0, answer
    code, answer = run(tmp_path, "draw", folder, *words[2:], tmp_path / "local.png")
    assert code == 0, answer
    pictures = [(tmp_path / f"{name}.png").read_bytes() for name in ("first", "again", "local")]
    assert pictures == pictures[:1] * 3


def test_both_repositories_of_a_pipeline_are_fetched(tmp_path):
    """The model card of the last stage names the repository of the first."""
    card = b"---\nlicense: mit\nprior:\n  - own.er/first-stage\n---\n"
    tokenizer = {"tokenizer/vocab.json": b"{}"}
    last = json.dumps({"_class_name": "WuerstchenDecoderPipeline", "tokenizer": ["transformers", "CLIPTokenizer"]})
    first = json.dumps({"_class_name": "WuerstchenPriorPipeline", "tokenizer": ["transformers", "CLIPTokenizer"]})
    files = {
        "own.er/last-stage": {"model_index.json": last.encode(), "README.md": card, **tokenizer},
        "own.er/first-stage": {"model_index.json": first.encode(), **tokenizer},
    }
    with hub_server(files) as (address, fetched):
        code, answer = run(tmp_path, "inspect", "hf://own.er/last-stage", HF_ENDPOINT=address)
    assert sorted(fetched) == ["README.md", *["model_index.json"] * 2, *["tokenizer/vocab.json"] * 2]
    assert code != 0
    assert "E-DIR-STAGE" not in json.dumps(answer)


def test_shards_and_precisions_of_a_pipeline(tmp_path):
    """Shards come with their index; where there is one precision alone, that is fetched."""
    index = {"_class_name": "StableDiffusionPipeline", "unet": ["diffusers", "X"], "vae": ["diffusers", "Y"]}
    (tmp_path / "model_index.json").write_text(json.dumps(index))
    shards = [f"unet/diffusion_pytorch_model-{n:05d}-of-00002.safetensors" for n in (1, 2)]
    wanted = [
        "model_index.json", "unet/config.json", "unet/diffusion_pytorch_model.safetensors.index.json", *shards,
        "vae/config.json", "vae/diffusion_pytorch_model.fp16.safetensors",
    ]  # fmt: skip
    others = ["unet/diffusion_pytorch_model.fp16.safetensors", "vae/diffusion_pytorch_model.fp16.bin", "README.md"]
    assert sorted(needed_files(tmp_path, [*wanted, *others])) == sorted(wanted)


def test_files_of_an_exported_pipeline(tmp_path):
    """Both graphs of the autoencoder, which has a folder for each, and the data next to a graph."""
    graphs = ("unet", "text_encoder", "vae_encoder", "vae_decoder")
    index = {name: ["optimum", "X"] for name in graphs[:2]} | {"_class_name": "ORTStableDiffusionPipeline"}
    (tmp_path / "model_index.json").write_text(json.dumps(index))
    wanted = ["model_index.json", "unet/model.onnx_data", *(f"{name}/model.onnx" for name in graphs)]
    assert sorted(needed_files(tmp_path, [*wanted, "safety_checker/model.onnx", "README.md"])) == sorted(wanted)

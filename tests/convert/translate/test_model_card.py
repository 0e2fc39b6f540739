"""Model cards against gguf-py's own reading of the same directories, and cards that are none."""

import json

import candle_convert as cc
import numpy as np
import pytest
from candle_convert.convert.translate.front_matter import DEPTH, LONGEST, front_matter
from candle_convert.convert.translate.model_card import general, parse_model_id
from candle_convert.runtime.ir.graph import Graph
from candle_convert.runtime.tensor.storage import Held
from candle_convert.tests.oracles.transformers import cases, made

gguf = pytest.importorskip("gguf")
IDS = [
    "meta-llama/Llama-2-7b-hf",
    "Mistral-7B-Instruct-v0.2",
    "Mixtral-8x7B-v0.1",
    "mistralai/Mistral-Nemo-Instruct-2407",
    "bloom-7b1-petals",
    "gpt2",
    "Phi-3-mini-128k-instruct",
    "Meta-Llama-3.1-8B",
    "Qwen2.5-0.5B-Instruct-GGUF-q4_K_M",
    "tiny-model",
    "llama3-8b-1048K",
    "Hermes-2-Pro-Llama-3-8B",
    "SmolLM2-135M",
    "EmbeddedLLM/Mistral-7B-Merge-14-v0",
    "Qwen1.5-MoE-A2.7B-Chat",
    "./local-model",
    "../x/y-7B",
    "A nice model",
    "-",
    "",
    "7B",
    "iter2-model",
    "model-large-xl",
    "Model-Large-3B",
    "DeepSeek-V2-Lite",
    "gemma-2-2b-it-bf16",
    "replit-code-v1_5-3b",
    "x-1.1b--chat",
    "RecurrentGemma-2b",
    "granite-3.0-3b-a800m-instruct",
    "OLMo-7B-0724-hf",
    "llava-v1.6-vision-lora",
    "Yi-34B-200K",
    "owner/deep/er-7b",
    "v1-v2",
    "stablelm-2-1_6b",
]
CARDS = {
    "plain": "license: mit\nlanguage: en\ntags:\n- a\n- no\npipeline_tag: text-generation\nbase_model: "
    "meta-llama/Llama-2-7b-hf\n",
    "lists": "license: [mit, apache-2.0]\nlanguage: [en, de]\ndatasets:\n- owner/set-v1\n- "
    "https://huggingface.co/datasets/x/y\n- https://huggingface.co/x/y-2B\n"
    "base_model:\n- https://huggingface.co/owner/base-7B-v2\n- ssh://somewhere\n- name: Given\n  organization: "
    "Someone\n  url: here\n",
    "names": "model_name: Great Model\nmodel_creator: Someone\nmodel_type: llama\nauthor: Another\ndescription: >\n  "
    "Two\n  lines\nlicense: other\n"
    "license_name: own\nlicense_link: https://x\nmodel_url: https://y\ndoi: 10.1/2\nfinetune: chat\nsize_label: "
    "9B\nversion: '2.0'\n",
    "empty lists": "tags: []\nbase_model:\ndatasets: []\nlanguage: null\nlicense: mit\n",
    "tabs": "license: mit\nmodel-index:\n- name: x\n\tresults: []\n",
}
GENERATION = {
    "temperature": 0.7,
    "top_p": 0.9,
    "top_k": 40,
    "min_p": 0.05,
    "penalty_repeat": 1.1,
    "do_sample": True,
    "mirostat": 2,
}


def theirs(folder, parameters):
    """What gguf-py writes, without what other parts of the converter say."""
    writer = gguf.GGUFWriter(None, "llama")
    gguf.Metadata.load(None, folder, None, parameters).set_gguf_meta_model(writer)
    keys = {key: value.value for key, value in writer.kv_data[0].items() if key != "general.architecture"}
    return {key.removeprefix("general."): value for key, value in keys.items()}


def ours(folder, parameters):
    graph = Graph(files=[str(folder / "model.safetensors")])
    graph.attachments = {path.name: Held(path.read_bytes()) for path in folder.iterdir()}
    return general(graph, parameters)


def plain(values):
    return {key: value.item() if isinstance(value, np.generic) else value for key, value in values.items()}


@pytest.mark.parametrize("parameters", [0, 7_000_000_000, 1_000_000, 300_000])
@pytest.mark.parametrize("model_id", IDS)
def test_model_ids_are_parsed(model_id, parameters):
    name = parse_model_id(model_id, parameters)
    wanted = gguf.Metadata.get_model_id_components(model_id, parameters)
    assert (name.whole, name.organization, name.basename, name.finetune, name.version, name.size_label) == wanted


@pytest.mark.parametrize("folder", ["Tiny-7B-Chat-v2", "tiny"])
@pytest.mark.parametrize("known", [None, "owner/Known-7B-v1", "/a/path/of/a-7B", "./checkpoint"])
@pytest.mark.parametrize("card", [None, *CARDS])
def test_directories(tmp_path, folder, known, card):
    (tmp_path / folder).mkdir()
    if card is not None:
        (tmp_path / folder / "README.md").write_text(f"---\n{CARDS[card]}---\n# Title\n---\n")
        (tmp_path / folder / "generation_config.json").write_text(json.dumps(GENERATION))
    (tmp_path / folder / "config.json").write_text(json.dumps({"_name_or_path": known} if known else {}))
    found, wanted = plain(ours(tmp_path / folder, 7_000_000_000)), theirs(tmp_path / folder, 7_000_000_000)
    for key in ("sampling.temp", "sampling.top_p", "sampling.min_p", "sampling.penalty_repeat"):
        assert (key in found) == (key in wanted)
        if key in found:
            wanted[key] = np.float32(wanted[key]).item()
    wanted = {key: value for key, value in wanted.items() if not (isinstance(value, list) and not value)}
    assert found == wanted
    assert list(found) == list(wanted)


def test_they_are_written(tmp_path):
    case = cases("LlamaForCausalLM", "llama", llama={})[0]
    made(case, 0, tmp_path / "Tiny-300k-chat")
    (tmp_path / "Tiny-300k-chat" / "README.md").write_text(f"---\n{CARDS['plain']}---\n")
    cc.convert(tmp_path / "Tiny-300k-chat", tmp_path / "m.gguf")
    metadata = {
        key: value for key, value in cc.open(tmp_path / "m.gguf").metadata.items() if key.startswith("general.")
    }
    assert metadata["general.license"] == "mit"
    assert metadata["general.base_model.count"] == 1
    assert metadata["general.base_model.0.repo_url"] == "https://huggingface.co/meta-llama/Llama-2-7b-hf"
    assert list(metadata["general.tags"]) == ["a", "no", "text-generation"]
    reader = gguf.GGUFReader(tmp_path / "m.gguf")
    assert reader.get_field("general.languages").contents() == ["en"]


def test_the_name_of_a_repository_in_the_hubs_cache(tmp_path):
    folder = tmp_path / "models--owner--Some-7B" / "snapshots" / "0123abc"
    folder.mkdir(parents=True)
    found = ours(folder, 0)
    assert (found["name"], found["organization"], found["size_label"]) == ("Some 7B", "Owner", "7B")


HOSTILE = [
    ("aliases", "a: &a [1, 2]\nb: *a\n"),
    ("deep", "a: " + "[" * (DEPTH + 1) + "]" * (DEPTH + 1) + "\n"),
    ("very deep", "[" * 100_000 + "\n"),
    ("long", "a: " + "x" * LONGEST + "\n"),
    ("no yaml", "a: b: c\n"),
    ("open quote", 'a: "\n'),
]


@pytest.mark.parametrize("text", [text for _, text in HOSTILE], ids=[name for name, _ in HOSTILE])
def test_cards_that_are_none(text, tmp_path):
    with pytest.raises(cc.FormatError, match="E-CARD"):
        front_matter(f"---\n{text}---\n")
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "README.md").write_text(f"---\n{text}---\n")
    assert ours(tmp_path / "m", 0)["name"] == "M"


@pytest.mark.parametrize(
    "text", ["", "# No head\n", "---\n", "---\n---\n", "---\n- a\n---\n", "---\n!!python/object:os.system {}\n---\n"]
)
def test_cards_without_keys(text):
    assert front_matter(text) in ({}, {"!!python/object": None})

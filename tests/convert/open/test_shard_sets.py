"""Shards of one model: whichever way they are named, the model that comes out computes what transformers computes."""

import json
import shutil

import candle_convert as cc
import numpy as np
import pytest
import tokenizers
import torch
from candle_convert import models
from candle_convert.convert.cli.main import run
from candle_convert.tests.oracles.transformers import cases, expected, made, transformers
from safetensors.numpy import load_file, save_file

CASE = cases("LlamaForCausalLM", "llama", llama={})[0]
IDS = np.array([[5, 17, 3, 88, 41, 9, 23, 70]])
INDEX = "model.safetensors.index.json"


@pytest.fixture(scope="module")
def sharded(tmp_path_factory):
    """A Llama in shards with an index, and its logits by transformers."""
    whole, folder = tmp_path_factory.mktemp("whole"), tmp_path_factory.mktemp("sharded")
    made(CASE, 0, whole)
    reference = transformers().AutoModelForCausalLM.from_pretrained(whole, dtype=torch.float32)
    reference.save_pretrained(folder, max_shard_size="100KB")
    return folder, expected(reference, IDS, None)


@pytest.fixture
def folder(sharded, tmp_path):
    shutil.copytree(sharded[0], tmp_path / "model")
    return tmp_path / "model"


def shards(folder):
    found = sorted(folder.glob("*-of-*.safetensors"))
    assert len(found) > 2
    return found


def same_logits(path, wanted):
    assert np.abs(models.load(path, threads=1).logits(IDS) - wanted).max() <= 3e-5 * np.abs(wanted).max()


@pytest.mark.parametrize("index", [True, False], ids=["index", "no index"])
@pytest.mark.parametrize("named", ["one", "all", "some"])
def test_shards_on_the_command_line_are_their_model(folder, sharded, tmp_path, named, index):
    if not index:
        (folder / INDEX).unlink()
    given = {"one": shards(folder)[:1], "all": shards(folder), "some": shards(folder)[1:]}[named]
    assert run(["convert", *map(str, given), str(tmp_path / "m.gguf"), "-q"]) == 0
    assert cc.open(tmp_path / "m.gguf").metadata["general.architecture"] == "llama"
    same_logits(tmp_path / "m.gguf", sharded[1])


def test_shards_without_an_index_next_to_other_weights(folder, tmp_path):
    """All that were named are converted, and nothing else of the folder."""
    (folder / INDEX).unlink()
    given = shards(folder)
    save_file({"other": np.ones(3, np.float32)}, folder / "other.safetensors")
    assert run(["convert", *map(str, given), str(tmp_path / "out.npz"), "-q"]) == 0
    assert "other" not in cc.open(tmp_path / "out.npz")
    assert len(cc.open(tmp_path / "out.npz")) == sum(len(load_file(path)) for path in given)


def test_a_quantized_shard_is_its_model(folder, tmp_path):
    assert run(["quantize", str(shards(folder)[0]), str(tmp_path / "q.gguf"), "F32", "-q"]) == 0
    assert cc.open(tmp_path / "q.gguf").metadata["general.architecture"] == "llama"


@pytest.mark.parametrize("index", [True, False], ids=["index", "no index"])
def test_a_shard_runs_as_its_model(folder, sharded, index):
    if not index:
        (folder / INDEX).unlink()
    same_logits(shards(folder)[1], sharded[1])
    trainable = cc.models.AutoModelForCausalLM.from_pretrained(str(shards(folder)[0]))
    got = trainable(IDS).logits.detach().numpy()
    assert np.abs(got - sharded[1]).max() <= 3e-5 * np.abs(sharded[1]).max()


@pytest.mark.parametrize("index", [True, False], ids=["index", "no index"])
def test_commands_that_run_models_take_one_shard(folder, tmp_path, index, capsys):
    letters = dict.fromkeys(["<unk>", "<s>", "</s>"]) | dict.fromkeys("abcdefghijklmnopqrstuvwxyz ")
    vocabulary = {piece: number for number, piece in enumerate(letters)}
    tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, [], unk_token="<unk>")).save(str(folder / "tokenizer.json"))
    if not index:
        (folder / INDEX).unlink()
    (tmp_path / "text.txt").write_text("one two three four " * 40)
    shard, text, answers = str(shards(folder)[0]), str(tmp_path / "text.txt"), []
    for given in (shard, str(folder)):
        capsys.readouterr()
        assert run(["generate", given, "-p", "one two", "--max-tokens", "4", "--temp", "0", "-q"]) == 0
        answers.append(capsys.readouterr().out)
    assert answers[0] == answers[1]
    assert run(["eval", shard, "--data", text, "--metric", "ppl", "--context", "16", "-q"]) == 0
    assert run(["imatrix", shard, "-d", text, "-o", str(tmp_path / "i.gguf"), "--context", "16", "-q"]) == 0


@pytest.mark.parametrize("index", [True, False], ids=["index", "no index"])
def test_missing_shards_are_named(folder, tmp_path, index, capsys):
    if not index:
        (folder / INDEX).unlink()
    last = shards(folder)[-1]
    for shard in shards(folder)[:-1]:
        shard.unlink()
    for path, output in ((last, "m.gguf"), (folder, "m.gguf"), (folder, "m.safetensors")):
        assert run(["convert", str(path), str(tmp_path / output), "-q"]) == 7
        assert "E-SHARD-MISSING" in capsys.readouterr().err
    assert run(["check", str(folder), "-q"]) != 0
    assert not list(tmp_path.glob("m.*"))


@pytest.mark.parametrize("index", [True, False], ids=["index", "no index"])
@pytest.mark.parametrize("name", ["m.safetensors", "m.pth", "m.npz", "directory"])
def test_all_shards_become_a_model_of_any_format(folder, sharded, tmp_path, name, index):
    if not index:
        (folder / INDEX).unlink()
    out = tmp_path / name
    words = ["-t", "safetensors"] if name == "directory" else []
    assert run(["convert", *map(str, shards(folder)), str(out), *words, "-q"]) == 0
    same_logits(out, sharded[1])


@pytest.mark.parametrize("words", [["part.safetensors"], ["part", "-t", "safetensors"], ["part.pth"]])
def test_a_part_of_a_model_is_reported(folder, tmp_path, words, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(["convert", *map(str, shards(folder)[1:]), *words]) == 0
    assert "part of a model: 1 shard is not among the inputs" in " ".join(capsys.readouterr().err.split())


def test_one_shard_alone_can_be_read_and_copied(folder, tmp_path):
    shard = shards(folder)[0]
    names = cc.load_file(shard).keys()
    assert run(["convert", str(shard), str(tmp_path / "part.safetensors"), "-q"]) == 0
    assert cc.load_file(tmp_path / "part.safetensors").keys() == names


def _omit(names, first, second):
    """An index without the tensors of a shard."""
    return {name: shard for name, shard in names.items() if shard != second}


def _omit_one(names, first, second):
    return dict(list(names.items())[1:])


def _exchange(names, first, second):
    """An index that has the tensors of two shards in each other."""
    other = {first: second, second: first}
    return {name: other.get(shard, shard) for name, shard in names.items()}


def _absent(names, first, second):
    """An index that has a tensor in a shard which is not there."""
    return {**names, next(iter(names)): "model-00009-of-00009.safetensors"}


def _renamed(names, first, second):
    """An index of files that were renamed since."""
    return {name: shard.replace("-of-0", "-of-1") for name, shard in names.items()}


@pytest.mark.parametrize("change", [_omit, _omit_one, _exchange, _absent, _renamed])
def test_an_index_that_is_wrong_about_tensors_that_are_there(folder, sharded, change):
    index = json.loads((folder / INDEX).read_text())
    first, second = (shard.name for shard in shards(folder)[:2])
    index["weight_map"] = change(index["weight_map"], first, second)
    (folder / INDEX).write_text(json.dumps(index))
    assert [note.code for note in cc.open(folder).notes] == ["W-INDEX"]
    same_logits(folder, sharded[1])


def test_absent_shards_with_tensors_that_nothing_else_has_are_named(folder):
    index = json.loads((folder / INDEX).read_text())
    index["weight_map"]["other"] = "model-00009-of-00009.safetensors"
    (folder / INDEX).write_text(json.dumps(index))
    with pytest.raises(cc.FileAccessError, match=r"E-SHARD-MISSING.*model-00009-of-00009"):
        cc.open(folder)


@pytest.mark.parametrize("index", [True, False], ids=["index", "no index"])
@pytest.mark.parametrize("change", [0, 1], ids=["equal", "different"])
def test_a_tensor_in_two_shards(folder, sharded, change, index):
    """Which of two is meant cannot be known."""
    first, second = shards(folder)[:2]
    name, array = next(iter(load_file(first).items()))
    save_file({**load_file(second), name: array + change}, second, {"format": "pt"})
    if not index:
        (folder / INDEX).unlink()
    with pytest.raises(cc.FormatError, match="E-SHARD-TWICE"):
        cc.open(folder)

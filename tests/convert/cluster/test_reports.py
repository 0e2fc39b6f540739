"""Hashes, comparisons and model runs on two worker processes: what one process prints."""

import json

import candle_convert as cc
import numpy as np
import pytest
from candle_convert.convert.cli.main import run
from candle_convert.convert.sounds.write_sound import write_sound
from candle_convert.tests.builders import packaged_models, tiny_llama


@pytest.fixture(scope="module")
def address():
    with cc.cluster("local:2") as workers:
        yield workers.client.scheduler.address


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A model, and its conversion with one changed tensor."""
    folder = tmp_path_factory.mktemp("files")
    random = np.random.default_rng(1)
    arrays = {f"blk.{number}.ffn_up.weight": random.standard_normal((64, 256), np.float32) for number in range(5)}
    cc.save_file(arrays, folder / "model.safetensors")
    arrays["blk.2.ffn_up.weight"] = arrays["blk.2.ffn_up.weight"] + 1
    cc.save_file(arrays, folder / "changed.safetensors")
    cc.quantize(folder / "changed.safetensors", folder / "made.gguf", cc.Recipe("Q8_0", pure=True))
    return folder


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["hash", "model.safetensors", "made.gguf", "--tensors"], 0),
        (["hash", "model.safetensors", "made.gguf", "--file"], 0),
        (["verify", "model.safetensors", "made.gguf", "--all"], 1),
    ],
)
def test_tensors(files, address, capsys, monkeypatch, words, code):
    """The same text and exit code, by pieces of one tensor."""
    from candle_convert.convert.cluster import tensor_reports

    monkeypatch.chdir(files)
    monkeypatch.setattr(tensor_reports, "GROUP_BYTES", 1)
    assert run(words) == code
    alone = capsys.readouterr().out
    assert run([*words, "--cluster", address]) == code
    assert capsys.readouterr().out == alone
    assert "made" in " ".join([*words, alone])


@pytest.mark.parametrize("padded", [False, True])
def test_embed(address, tmp_path, capsys, monkeypatch, padded):
    """Vectors of texts, packed and padded, in pieces of one run: the bytes of one process."""
    from candle_convert.convert.cluster import model_rows

    monkeypatch.setattr(model_rows, "RUNS", 1)
    model = str(packaged_models.minilm())
    texts = [f"{'very ' * (number * 7 % 31)}short text {number}" for number in range(200)]
    texts += ["[PAD] is a token of padding"] * padded
    (tmp_path / "texts.txt").write_text("\n".join(texts))
    words = ["embed", model, "-f", str(tmp_path / "texts.txt"), "--batch", "24", "-o"]
    assert run([*words, str(tmp_path / "alone.npy")]) == 0
    assert run([*words, str(tmp_path / "shared.npy"), "--cluster", address]) == 0
    assert (tmp_path / "alone.npy").read_bytes() == (tmp_path / "shared.npy").read_bytes()
    assert "dashboard" in capsys.readouterr().err


def test_predict(address, tmp_path, capsys, monkeypatch):
    """Labels of texts, by pieces of one batch: the numbers of one process."""
    from candle_convert.convert.cluster import model_rows
    from candle_convert.tests.builders.text_checkpoints import checkpoint

    monkeypatch.setattr(model_rows, "TEXT_ROWS", 8)
    checkpoint("BertForSequenceClassification", tmp_path)
    texts = [f"{'very ' * (number * 7 % 31)}short text {number}" for number in range(50)]
    (tmp_path / "texts.txt").write_text("\n".join(texts))
    words = ["predict", str(tmp_path), "-f", str(tmp_path / "texts.txt"), "--json"]
    assert run(words) == 0
    alone = json.loads(capsys.readouterr().out)
    assert run([*words, "--cluster", address]) == 0
    assert json.loads(capsys.readouterr().out) == alone


def test_damaged_files(address, tmp_path, capsys):
    """A damaged sound among several is reported, the others have their results, in order."""
    from candle_convert.tests.builders.speech_checkpoints import WHISPERS, whisper

    whisper(WHISPERS[0], 0, tmp_path / "model")
    for number in range(3):
        tone = np.sin(np.arange(16000) * (number + 1) / 30).astype(np.float32)
        write_sound(tmp_path / f"{number}.wav", tone, 16000)
    (tmp_path / "1.wav").write_bytes(b"RIFF")
    sounds = [str(tmp_path / f"{number}.wav") for number in range(3)]
    words = ["transcribe", str(tmp_path / "model"), *sounds, "--json", "--language", "en"]
    code = run(words)
    alone = json.loads(capsys.readouterr().out)
    assert run([*words, "--cluster", address]) == code != 0
    shared = json.loads(capsys.readouterr().out)
    assert shared == alone
    assert [each["input"] for each in shared["results"]] == [sounds[0], sounds[2]]
    assert shared["errors"][0]["input"] == sounds[1]


def test_standard_input(address, tmp_path, capsys):
    from candle_convert.tests.builders.speech_checkpoints import WHISPERS, whisper

    whisper(WHISPERS[0], 0, tmp_path)
    assert run(["transcribe", str(tmp_path), "-", "--cluster", address]) == 2
    assert "workers cannot read standard input" in capsys.readouterr().err


def test_generate(address, tmp_path, capsys, monkeypatch):
    """Answers to prompts of a file with a seed are those of one process, by pieces of two."""
    from candle_convert.convert.cluster import prompt_rows

    monkeypatch.setattr(prompt_rows, "PROMPTS", 2)
    model = tiny_llama.written(tmp_path / "llama.gguf")
    rows = [{"prompt": f"Say {number}", "max_tokens": 4 + number % 2} for number in range(5)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    words = ["generate", str(model), "-f", str(tmp_path / "rows.jsonl"), "--seed", "4"]
    assert run(words) == 0
    alone = capsys.readouterr().out
    assert run([*words, "--cluster", address]) == 0
    assert capsys.readouterr().out == alone
    assert [len(json.loads(line)["tokens"]) for line in alone.splitlines()] == [4, 5, 4, 5, 4]


def test_text(address, tmp_path, capsys):
    """An importance matrix of the same bytes, and the same figures of perplexity and divergence."""
    model = tiny_llama.written(tmp_path / "llama.gguf")
    cc.quantize(model, tmp_path / "small.gguf", "Q8_0")
    text = tmp_path / "text.txt"
    text.write_text("A cat sat on the mat, and a dog ran by. " * 20)
    more = ["--context", "64", "--chunks", "6"]
    words = ["imatrix", str(model), "-d", str(text), *more, "-o"]
    assert run([*words, str(tmp_path / "alone.gguf")]) == 0
    assert run([*words, str(tmp_path / "shared.gguf"), "--cluster", address]) == 0
    assert (tmp_path / "alone.gguf").read_bytes() == (tmp_path / "shared.gguf").read_bytes()
    capsys.readouterr()
    words = ["eval", str(tmp_path / "small.gguf"), "-d", str(text), *more, "--metric", "kld", "--against", str(model)]
    assert run(words) == 0
    alone = capsys.readouterr().out
    assert run([*words, "--cluster", address]) == 0
    assert capsys.readouterr().out == alone
    assert "kld" in alone


def test_replaced_file(files, address, tmp_path, capsys):
    """A file that was replaced by another one between two runs on the same workers."""
    path = tmp_path / "model.safetensors"
    for name in ("model.safetensors", "changed.safetensors"):
        path.write_bytes((files / name).read_bytes())
        assert run(["hash", str(path), "--tensors"]) == 0
        alone = capsys.readouterr().out
        assert run(["hash", str(path), "--tensors", "--cluster", address]) == 0
        assert capsys.readouterr().out == alone


def test_nothing_is_kept(files, tmp_path):
    """Workers free what they prepared when a command or conversion ends, with a scheduler that goes on."""
    from candle_convert.convert.cluster.workers import worker

    with cc.cluster("local:1") as cluster:
        assert run(["hash", str(files / "made.gguf"), "--cluster", cluster.client.scheduler.address]) == 0
        assert list(cluster.client.run(lambda: len(worker._KEPT)).values()) == [0]
        for verify in ("sample", "none"):
            made = tmp_path / f"{verify}.npz"
            cc.convert(files / "model.safetensors", made, dtype="f16", verify=verify, cluster=cluster)
            assert list(cluster.client.run(lambda: len(worker._KEPT)).values()) == [0]


def test_limits(files, address, capsys):
    """Workers have the limits of the command."""
    words = ["hash", str(files / "made.gguf"), "--cluster", address, "--limit", "entries=3"]
    assert run(words) != 0
    assert "E-LIMIT-ENTRIES" in capsys.readouterr().err
    from candle_convert.convert.cluster.workers.cluster import Cluster
    from candle_convert.runtime.base.limits import limits
    from candle_convert.tests.builders.cluster_work import Entries

    with Cluster(address) as workers, limits(entries=3):
        assert list(workers.in_order(Entries(), range(4))) == [(3, 3)] * 4


def test_threads_are_refused(files, address, capsys):
    words = ["verify", str(files / "model.safetensors"), str(files / "made.gguf")]
    assert run([*words, "--threads", "2", "--cluster", address]) == 2
    assert "--threads does not apply to --cluster" in capsys.readouterr().err


def test_python(files, address):
    """`hash` and `verify` with a handle and with a client of Dask, and a model that runs on the workers."""
    model, made = files / "model.safetensors", files / "made.gguf"
    with cc.cluster(address) as cluster:
        for where in (cluster, cluster.client):
            assert cc.hash(model, cluster=where) == cc.hash(model)
            found = cc.verify(model, made, cluster=where)
            assert found.to_json() == cc.verify(model, made).to_json()
            assert len(found.failed) == 1
        texts = [f"{'very ' * (number * 5 % 17)}short" for number in range(20)]
        shared = cluster.load(packaged_models.minilm(), "embed").embed(texts)
        np.testing.assert_array_equal(shared, cc.models.load(packaged_models.minilm()).embed(texts))
        with pytest.raises(cc.UsageError, match="an open model cannot be sent"):
            cc.verify(cc.open(model), made, cluster=cluster)
    for call in (lambda: cc.hash(model, cluster="local:2"), lambda: cc.verify(model, made, cluster=7)):
        with pytest.raises(cc.UsageError, match="is not a cluster"):
            call()

"""``--dry-run`` of commands that run on workers: what each gets, with nothing started, sent or written."""

import json
import shutil

import candle_convert as cc
import numpy as np
import pytest
from candle_convert.convert.cli.main import run
from candle_convert.convert.sounds.write_sound import write_sound
from candle_convert.tests.builders import packaged_models
from candle_convert.tests.builders.paths import EXAMPLES
from candle_convert.tests.builders.speech_checkpoints import WHISPERS, whisper
from gguf import GGUFReader
from safetensors.numpy import load_file

LINES = 300


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A language model, its GGUF file, and texts."""
    folder = tmp_path_factory.mktemp("files")
    shutil.copytree(EXAMPLES / "tiny_llama", folder / "model")
    cc.convert(folder / "model", folder / "model.gguf")
    (folder / "texts.txt").write_text("".join(f"the text of number {number}\n" for number in range(LINES)))
    (folder / "prompts.jsonl").write_text(json.dumps({"prompt": "a"}) + "\n")
    (folder / "minilm").symlink_to(packaged_models.minilm())
    whisper(WHISPERS[0], 0, folder / "whisper")
    for name in ("a.wav", "b.wav"):
        write_sound(folder / name, np.zeros(16000, np.float32), 16000)
    return folder


def stored(path):
    """Bytes of the tensors of a directory or a GGUF file."""
    if path.is_dir():
        return sum(array.nbytes for array in load_file(path / "model.safetensors").values())
    return sum(int(tensor.n_bytes) for tensor in GGUFReader(path).tensors)


@pytest.mark.parametrize(
    ("words", "unit", "models", "held"),
    [
        (["embed", "minilm", "-f", "texts.txt", "-o", "out.npy"], "piece", ["minilm"], True),
        (["generate", "model", "-f", "prompts.jsonl", "-o", "out.jsonl"], "piece", ["model"], True),
        (["generate", "model", "-p", "a", "--tensor-parallel", "2"], "rank", ["model"], True),
        (["imatrix", "model", "-d", "texts.txt", "-o", "out.gguf"], "piece", ["model"], True),
        (["eval", "model", "--metric", "ppl", "--data", "texts.txt"], "piece", ["model"], True),
        (["transcribe", "whisper", "a.wav", "b.wav"], "piece", ["whisper"], True),
        (["hash", "model"], "piece", ["model"], False),
        (["hash", "model/config.json", "--file"], "piece", [], False),
        (["verify", "model", "model.gguf"], "piece", ["model", "model.gguf"], False),
        (["verify", "model", "model.gguf", "--level", "none", "--prompt", "a"], "piece", ["model", "model.gguf"], True),
    ],
    ids=lambda value: "-".join(value[:1]) if isinstance(value, list) else None,
)
def test_shares(files, capsys, monkeypatch, words, unit, models, held):
    """The bytes of the weights that workers hold or read, and no process of ``local:2``."""
    monkeypatch.chdir(files)
    monkeypatch.setattr("distributed.LocalCluster", None)
    before = sorted(files.iterdir())
    assert run([*words, "--cluster", "local:2", "--dry-run", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["dry_run"], found["unit"], found["held"], found["workers"]) == (True, unit, held, 2)
    wanted = sum(stored(files / name) for name in models)
    if "--file" in words:
        wanted = (files / "model" / "config.json").stat().st_size
    assert found["bytes"] == (wanted // 2 if unit == "rank" else wanted)
    assert sorted(files.iterdir()) == before


def test_pieces_are_those_of_a_run(files, capsys, monkeypatch):
    """As many pieces as workers get, and a line for people."""
    from candle_convert.convert.cluster.workers.cluster import _Run

    sent = []
    send = _Run._send
    monkeypatch.setattr(_Run, "_send", lambda self, number, piece: (sent.append(number), send(self, number, piece)))
    monkeypatch.chdir(files)
    words = ["embed", "minilm", "-f", "texts.txt", "--batch", "8", "-o", "pieces.npy", "--cluster"]
    with cc.cluster("local:1") as workers:
        address = workers.client.scheduler.address
        assert run([*words, address, "--dry-run"]) == 0
        shown = capsys.readouterr()
        assert not sent
        assert run([*words, address]) == 0
    assert f" share    {len(sent)} pieces, " in shown.out
    assert "1 worker" in shown.err
    assert np.load("pieces.npy").shape[0] == LINES


@pytest.mark.parametrize(
    ("words", "hint"),
    [(["hash", "model", "--dry-run"], "Add --cluster"), (["generate", "model", "-p", "a", "--dry-run"], "--cluster")],
)
def test_without_workers(files, capsys, monkeypatch, words, hint):
    """A plan of workers that are not named is refused."""
    monkeypatch.chdir(files)
    assert run(words) == 2
    assert hint in capsys.readouterr().err


def test_stages(files, capsys, monkeypatch):
    """The largest of the stages, which have all layers between them."""
    monkeypatch.chdir(files)
    words = ["--cluster", "local:2", "--dry-run", "--json"]
    assert run(["generate", "model", "-p", "a", *words]) == 0
    two = json.loads(capsys.readouterr().out)
    assert run(["generate", "model", "-p", "a", "--pipeline-parallel", "1", *words]) == 0
    one = json.loads(capsys.readouterr().out)
    assert (two["unit"], two["count"], one["count"]) == ("stage", 2, 1)
    assert stored(files / "model") / 2 <= two["bytes"] < one["bytes"]

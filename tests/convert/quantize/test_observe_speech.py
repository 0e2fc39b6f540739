"""Importance of a model of speech: squares of what each matrix of transformers' model gets of the same windows."""

import candle_convert as cc
import numpy as np
import pytest
import torch
from candle_convert.convert.cli.main import run
from candle_convert.convert.load.bind import bind_model
from candle_convert.convert.load.load_model import load
from candle_convert.convert.quantize.observe_importance import observe
from candle_convert.convert.quantize.observe_speech import heard_pieces
from candle_convert.convert.sounds.write_sound import write_sound
from candle_convert.tests.builders.speech_checkpoints import SECONDS, WHISPERS, whisper

SEEN = {
    "encoder.layers.1.fc1": "encoder.layers.1.mlp.up.weight",
    "decoder.layers.0.self_attn.q_proj": "decoder.layers.0.attn.q.weight",
    "decoder.layers.2.fc2": "decoder.layers.2.mlp.down.weight",
}


@pytest.fixture
def folder(tmp_path):
    """A model, and two windows of a sound."""
    tmp_path.joinpath("hf").mkdir()
    reference = whisper(WHISPERS[0], 0, tmp_path / "hf")
    rng = np.random.default_rng(0)
    write_sound(tmp_path / "s.wav", rng.uniform(-0.5, 0.5, 16000 * SECONDS * 2).astype(np.float32), 16000)
    return tmp_path, reference


def test_squares_are_those_of_transformers(folder):
    path, reference = folder
    pieces = heard_pieces(load(path / "hf"), [str(path / "s.wav")])
    assert len(pieces) == 2
    found = observe(bind_model(cc.open(path / "hf")), pieces)
    rows = {name: [] for name in SEEN}
    for name in SEEN:
        module = reference.model.get_submodule(name)
        module.register_forward_pre_hook(lambda _, given, kept=rows[name]: kept.append(given[0][0].numpy()))
    with torch.no_grad():
        for piece in pieces:
            reference(torch.from_numpy(piece["input_features"]), decoder_input_ids=torch.from_numpy(piece["input_ids"]))
    for name, ours in SEEN.items():
        wanted = np.concatenate(rows[name]).astype(np.float64)
        np.testing.assert_allclose(found.sums[ours][0], (wanted**2).sum(0), rtol=1e-3)
        assert found.counts[ours].tolist() == [len(wanted)]


def test_the_command_takes_sounds_for_whisper_and_says_what_it_cannot_hear(folder, capsys):
    path, _ = folder
    words = ["imatrix", str(path / "hf"), "-o", str(path / "i.gguf"), "-d"]
    assert run([*words, str(path / "s.wav"), "--chunks", "1"]) == 0
    assert "1 window" in capsys.readouterr().out
    assert run(["quantize", str(path / "hf"), str(path / "q.gguf"), "IQ4_NL", "--imatrix", str(path / "i.gguf")]) == 0
    (path / "text.wav").write_text("no sound")
    assert run([*words, str(path / "text.wav"), "-f"]) == 3
    assert "E-" in capsys.readouterr().err

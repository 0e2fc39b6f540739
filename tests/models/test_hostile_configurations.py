"""Configurations that no model has: one clear error, in no time."""

import json

import candle_convert as cc
import pytest
from candle_convert.convert.modelling import modelled
from checkpoints import cases, made

CASES = {
    "too many layers": ({"num_hidden_layers": 10**9}, "E-ARCH-KEY"), "less than no layers": ({"num_hidden_layers": -1}, "E-ARCH-KEY"),
    "heads of no width": ({"head_dim": 0, "num_heads": None}, "E-ARCH-KEY"), "no groups": ({"n_groups": 0}, "E-ARCH-KEY"),
    "groups of another number": ({"n_groups": 7}, "E-ARCH-SHAPE"), "an unknown activation": ({"hidden_act": "softplussed"}, "E-ARCH-KEY"),
    "limits of one number": ({"time_step_limit": [1.0]}, "E-ARCH-KEY"), "more layers than there are": ({"num_hidden_layers": 3}, "E-ARCH-MISSING"),
    "fewer layers than there are": ({"num_hidden_layers": 1}, "E-ARCH-EXTRA"), "a state of another width": ({"state_size": 9}, "E-ARCH-SHAPE"),
}  # fmt: skip


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mamba2")
    config = {"num_hidden_layers": 2, "state_size": 8, "num_heads": 8, "head_dim": 16, "n_groups": 2, "expand": 2, "tie_word_embeddings": False}
    made(cases("Mamba2ForCausalLM", "mamba2", mamba2=config)[0], 0, folder)
    return folder, json.loads((folder / "config.json").read_text())


@pytest.mark.parametrize("what", CASES)
def test_refused(what, checkpoint):
    (folder, config), (changes, code) = checkpoint, CASES[what]
    (folder / "config.json").write_text(json.dumps(config | changes))
    with pytest.raises(cc.FormatError) as caught:
        modelled(cc.open(folder))
    assert caught.value.code == code

"""``verify`` of a checkpoint and its network: batch norms and branches that were folded wrongly are found."""

import json

import candle_convert as cc
import numpy as np
import pytest
from candle_convert.convert.cli.main import run
from candle_convert.convert.compare.unfolded_network import unfolded_networks
from candle_convert.tests.builders.timm_outputs import recorded, weights

RECORDED = recorded()
CONVOLUTIONS = {"resnet18": "layer1.0.conv1", "repvgg_a0": "stages.0.0", "fastvit_sa12": "stem.0"}
"""A convolution of the network by timm's name of the model."""


@pytest.fixture(params=CONVOLUTIONS)
def folder(request, tmp_path):
    case, made = RECORDED[request.param], tmp_path / request.param
    made.mkdir()
    (made / "config.json").write_text(json.dumps({"architecture": request.param, "model_args": case["arguments"]}))
    cc.save_file(weights(case), made / "model.safetensors")
    return made


def test_networks(folder, tmp_path):
    for keep in (False, True):
        cc.convert(folder, tmp_path / "m.onnx", keep_branches=keep, force=True)
        assert run(["verify", str(folder), str(tmp_path / "m.onnx"), "-q"]) == 0
    ((unfolded, _),) = unfolded_networks(cc.open(folder), cc.open(tmp_path / "m.onnx")).values()
    stored = sum(name.endswith("running_var") for name in cc.load_file(folder / "model.safetensors"))
    assert sum(node.op.name == "BatchNormalization" for node in unfolded.nodes) == stored


@pytest.mark.parametrize("part", ["weight", "bias"])
def test_a_wrong_fold_is_found(folder, part, tmp_path):
    cc.convert(folder, tmp_path / "m.onnx")
    network = cc.onnx.read(tmp_path / "m.onnx")
    graph = network.graph
    name = f"{CONVOLUTIONS[folder.name]}.{part}"
    array = graph.weights[name].numpy().copy()
    array[0] += 0.1 * np.abs(array).max()
    graph.weights[name] = type(graph.weights[name]).of(array)
    network.save(tmp_path / "wrong.onnx")
    assert run(["verify", str(folder), str(tmp_path / "wrong.onnx"), "-q"]) == 1


def test_networks_of_other_models(folder, tmp_path, capsys):
    cc.convert(folder, tmp_path / "m.onnx")
    network = cc.onnx.read(tmp_path / "m.onnx").rename({"logits": "other"})
    network.save(tmp_path / "other.onnx")
    assert run(["verify", str(folder), str(tmp_path / "other.onnx"), "-q"]) == 2
    assert "E-VERIFY-GRAPHS" in capsys.readouterr().err

"""A config.json that does not state the model's class: the one whose weights are those of the file, if there is one;
otherwise --task chooses, or the key to add is named."""

import json

import candle_convert as cc
import numpy as np
import pytest
from candle_convert import models
from candle_convert.tests.builders.class_models import CASES, reference
from safetensors.numpy import load_file, save_file

HEADS = [name for name in CASES if name.endswith(("Classification", "MaskedLM", "Answering"))]
TASKS = {"BertForSequenceClassification": "text-classification", "BertForTokenClassification": "token-classification"}
INPUTS = {
    "input_ids": np.array([[5, 6, 7, 8]]),
    "pixel_values": np.random.default_rng(0).random((1, 3, 32, 32), np.float32),
}


def without_class(folder):
    """Remove the class from a config.json."""
    path = folder / "config.json"
    stated = json.loads(path.read_text())
    path.write_text(json.dumps({key: value for key, value in stated.items() if key != "architectures"}))


def outputs(model):
    taken = {value.name for value in model.graph.inputs}
    return dict(model(**{name: array for name, array in INPUTS.items() if name in taken}))


@pytest.mark.parametrize("name", [name for name in HEADS if name not in TASKS])
def test_the_weights_decide(name, tmp_path):
    """They fit one class alone, and give what that gives."""
    reference(name, tmp_path)
    stated = outputs(models.load(tmp_path))
    without_class(tmp_path)
    found = models.load(tmp_path)
    for key, array in outputs(found).items():
        np.testing.assert_array_equal(array, stated[key])
    assert outputs(found).keys() == stated.keys()


@pytest.mark.parametrize("name", TASKS)
def test_several_tasks_fit(name, tmp_path):
    """BERT classifies texts and tokens by weights of the same names: the caller chooses."""
    reference(name, tmp_path)
    stated = outputs(models.load(tmp_path))
    without_class(tmp_path)
    with pytest.raises(cc.FormatError, match="E-ARCH-EXTRA") as caught:
        models.load(tmp_path)
    assert "choose text-classification or token-classification with predict --task" in caught.value.hint
    for key, array in outputs(models.load(tmp_path, task=TASKS[name])).items():
        np.testing.assert_array_equal(array, stated[key])


def test_no_task_fits(tmp_path):
    """The key to add is named."""
    reference("BertForQuestionAnswering", tmp_path)
    without_class(tmp_path)
    path = tmp_path / "model.safetensors"
    weights = load_file(path)
    save_file({**weights, "another.weight": weights["qa_outputs.weight"]}, path, {"format": "pt"})
    with pytest.raises(cc.FormatError, match="E-ARCH-EXTRA") as caught:
        models.load(tmp_path)
    assert "config.json lacks architectures" in caught.value.hint
    assert "--task" not in caught.value.hint

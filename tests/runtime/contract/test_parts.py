"""Models made of models: rows, names and keys of parts, and what is wrong with files that state them badly."""

import dataclasses

import candle_convert as cc
import numpy as np
import pytest
from candle_convert.runtime.contract.architecture import GGUF, HF, Architecture, Below, Key, Part, Task, Weight
from candle_convert.runtime.contract.composition import architecture_of, whole
from candle_convert.runtime.contract.part_binding import bound_to_file, inner_names
from candle_convert.runtime.contract.part_rows import part_config, part_weights
from candle_convert.runtime.contract.weight_binding import bind, config_from, config_keys, ignored, unbind
from candle_convert.runtime.tensor.stored_tensor import StoredTensor

INNER = Architecture(
    "inner", "Inner", ("inner", "inner_2"), (),
    (Key("width", "hidden_size"), Key("layers", "layers.count", default=1)),
    (Weight("layers.{i}.weight", "model.layers.{i}.weight", shape=("width", "width")),
     Weight("head.weight", "lm_head.weight", shape=(3, "width"))),
    (), ignored=(r"^mask$", r"old\.{layers}$"), nested_defaults={"inner_2": {"hidden_size": 4}},
)  # fmt: skip
WAYS = (Below("lm_head.", "lm_head."), Below("model.text.", "model."), Below("text.", ""))
OUTER = Architecture(
    "outer", "Outer", ("outer",), ("outer",), (Key("scale", "scale", "scale"),),
    (Weight("between.weight", "between.weight", "between.weight", shape=("text.width", "scale")),),
    (Task("none", {}, lambda graphs, options: None),), prefixes=(), ignored=(),
    parts={"text": Part(INNER, "text_config", WAYS), "vision": Part(None, "vision_config", optional=True)},
)  # fmt: skip
STATED = {"model_type": "outer", "scale": 2, "text_config": {"hidden_size": 4, "layers": {"count": 2}}}


def tensors(**shapes):
    return {name.replace("__", "."): StoredTensor.of(np.zeros(shape, np.float32)) for name, shape in shapes.items()}


NEW = tensors(
    between__weight=(4, 2), lm_head__weight=(3, 4), model__text__layers__0__weight=(4, 4),
    model__text__layers__1__weight=(4, 4),
)  # fmt: skip
OLD = tensors(
    between__weight=(4, 2), text__lm_head__weight=(3, 4), text__model__layers__0__weight=(4, 4),
    text__model__layers__1__weight=(4, 4),
)  # fmt: skip


def bound(stated, weights, names=HF):
    architecture = bound_to_file(whole(OUTER), names, stated, weights)
    config = config_from(architecture, names, stated)
    return architecture, config, bind(architecture, config, weights, names)


@pytest.mark.parametrize("weights", [NEW, OLD], ids=["new", "old"])
def test_a_part_is_bound_below_its_name(weights):
    architecture, config, found = bound(STATED, weights)
    assert set(found) == {"between.weight", "text.head.weight", "text.layers.0.weight", "text.layers.1.weight"}
    inner = part_config(config, "text")
    assert (inner.width, inner.layers, inner.names) == (4, 2, HF)
    assert set(part_weights(found, "text")) == {"head.weight", "layers.0.weight", "layers.1.weight"}
    assert set(unbind(architecture, config, found, HF)) == set(NEW), "the first way is written"


def test_other_files_have_own_names_and_the_keys_of_config_json():
    architecture, config, found = bound(STATED, NEW)
    keys = config_keys(architecture, GGUF, config)
    assert keys == {
        "outer.scale": 2, "outer.text_config.model_type": "inner", "outer.text_config.hidden_size": 4,
        "outer.text_config.layers.count": 2,
    }  # fmt: skip
    stated = {"general.architecture": "outer", **keys}
    stored = unbind(architecture, config, found, GGUF)
    assert set(stored) == set(found)
    again = config_from(whole(OUTER), GGUF, stated)
    assert bind(whole(OUTER), again, stored, GGUF).keys() == found.keys()


def test_defaults_of_nested_configurations_are_filled_in():
    _, config, _ = bound({**STATED, "text_config": {"model_type": "inner_2", "layers": {"count": 2}}}, NEW)
    assert (config.values["text.width"], config.values["text.model_type"]) == (4, "inner_2")


def test_tensors_that_are_no_weights_are_found_below_the_prefix():
    architecture, config, _ = bound(STATED, NEW)
    names = ("model.text.mask", "text.mask", "mask", "model.text.a.old.2", "model.text.a.old.1", "between.old.2")
    assert ignored(architecture, config, names) == {"model.text.mask", "text.mask", "model.text.a.old.2"}


def test_names_of_a_part_in_its_own_file():
    assert inner_names(OUTER.parts["text"], NEW) == {
        "lm_head.weight": "lm_head.weight", "model.text.layers.0.weight": "model.layers.0.weight",
        "model.text.layers.1.weight": "model.layers.1.weight",
    }  # fmt: skip


def test_settling_a_part_changes_its_values_and_weights():
    def settle(config, weights):
        config.values["layers"] = len([name for name in weights if name.startswith("layers.")])
        weights["extra"] = weights.pop("head.weight")

    parts = {"text": dataclasses.replace(OUTER.parts["text"], architecture=dataclasses.replace(INNER, settle=settle))}
    architecture = whole(dataclasses.replace(OUTER, parts=parts))
    config = config_from(architecture, HF, STATED)
    found = bind(architecture, config, NEW, HF)
    assert "text.extra" in found
    assert "text.head.weight" not in found
    assert config.values["text.layers"] == 2


@pytest.mark.parametrize(
    ("changed", "weights", "code", "says"),
    [
        ({"text_config": [1]}, {}, "E-ARCH-KEY", "text_config"),
        ({"text_config": {"hidden_size": -1}}, {}, "E-ARCH-KEY", "text_config.hidden_size"),
        ({"text_config": {}}, {}, "E-ARCH-KEYS", "text_config.hidden_size"),
        ({"vision_config": {"model_type": "unheard_of"}}, tensors(vision_config__a=(2,)), "E-ARCH", "unheard_of"),
        ({"vision_config": 3}, tensors(vision_config__a=(2,)), "E-ARCH-KEY", "vision_config"),
        ({"scale": 3}, {}, "E-ARCH-SHAPE", "between.weight"),
    ],
)
def test_what_is_wrong_with_a_part_is_said(changed, weights, code, says):
    with pytest.raises(cc.Error, match=says) as caught:
        bound({**STATED, **changed}, {**NEW, **weights})
    assert caught.value.code == code


def test_a_part_that_is_needed_and_missing():
    needed = {**OUTER.parts, "vision": Part(None, "vision_config")}
    with pytest.raises(cc.Error, match="missing the weights of vision_config"):
        bound_to_file(whole(dataclasses.replace(OUTER, parts=needed)), HF, STATED, NEW)


def test_an_architecture_that_nothing_registers():
    with pytest.raises(LookupError, match="no architecture is named"):
        architecture_of(Part("unheard of", ""))

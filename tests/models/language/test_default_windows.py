"""config.json files without a window: transformers' default of the family applies, which null turns off."""

import json

import numpy as np
import pytest
from candle_convert.runtime.contract.architecture import HF
from candle_convert.runtime.contract.weight_binding import config_from, config_keys, find_architecture
from candle_convert.tests.builders.decoder_cases import DECODERS, WITHOUT_GGUF
from candle_convert.tests.oracles.transformers import difference, expected, made, transformers

KEY = "sliding_window"
KINDS = {case.config["model_type"]: case for case in reversed((*DECODERS, *WITHOUT_GGUF))}


def stated(case):
    """The configuration of a case, without a window."""
    rows = {**case.base, **case.config}
    return {key: value[0] if isinstance(value, tuple) else value for key, value in rows.items() if key != KEY}


@pytest.mark.parametrize("kind", KINDS)
def test_windows_are_those_of_transformers(kind):
    pytest.importorskip("torch")
    case = KINDS[kind]
    config = stated(case)
    if not hasattr(transformers(), case.cls):
        pytest.skip("not a class of transformers")
    theirs = getattr(transformers(), case.cls).config_class.from_dict(json.loads(json.dumps(config))).to_dict()
    architecture = find_architecture(HF, config)
    ours = config_from(architecture, HF, config)
    if KEY not in theirs or "windows" not in ours.values:
        return
    assert ours.windows == config_from(architecture, HF, {**config, KEY: theirs[KEY]}).windows
    none = config_from(architecture, HF, {**config, KEY: None})
    assert not any(none.windows)
    again = {**config, "model_type": architecture.model_types[0], **config_keys(architecture, HF, none)}
    assert not any(config_from(architecture, HF, again).windows)


def test_gpt_oss_has_its_window(tmp_path):
    """The only default that is shorter than a text of a test."""
    from dataclasses import replace

    from candle_convert import models

    case = KINDS["gpt_oss"]
    case = replace(case, config={**stated(case), "max_position_embeddings": 512})
    reference = made(case, 0, tmp_path)
    ids = np.random.default_rng(0).integers(3, 96, (1, 300))
    assert difference(models.load(tmp_path, threads=1).logits(ids), expected(reference, ids, None)) < 1e-4

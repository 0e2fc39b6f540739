"""A config.json that does not state the model's class: heads, which transformers takes by the class that the caller
names, are refused with the key to add."""

import json

import candle_convert as cc
import pytest
from candle_convert import models
from candle_convert.tests.builders.class_models import CASES, reference

HEADS = [name for name in CASES if name.endswith(("Classification", "MaskedLM", "Answering"))]


@pytest.mark.parametrize("name", HEADS)
def test_the_error_names_the_missing_key(name, tmp_path):
    cls = type(reference(name, tmp_path))
    path = tmp_path / "config.json"
    stated = json.loads(path.read_text())
    path.write_text(json.dumps({key: value for key, value in stated.items() if key != "architectures"}))
    with pytest.raises(cc.FormatError, match="E-ARCH-EXTRA") as caught:
        models.load(tmp_path)
    assert "config.json lacks architectures" in caught.value.hint
    _, report = cls.from_pretrained(tmp_path, output_loading_info=True)
    assert not report["missing_keys"]
    path.write_text(json.dumps({**stated, "architectures": [name]}))
    models.load(tmp_path)

"""Directories of models whose config.json states something else, which loading refuses."""

import json

import candle_convert as cc
import pytest
from candle_convert.runtime.base.errors import FormatError


def refused(folder, target, change):
    """What loading a copy of `folder` says, whose config.json is what `change` makes of it; one line."""
    for path in folder.iterdir():
        (target / path.name).write_bytes(path.read_bytes())
    (target / "config.json").write_text(json.dumps(change(json.loads((folder / "config.json").read_text()))))
    with pytest.raises(FormatError) as caught:
        cc.models.load(target)
    assert "\n" not in str(caught.value)
    return str(caught.value)

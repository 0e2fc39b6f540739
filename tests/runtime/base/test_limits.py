"""Limits: their values as text, their scope, and what happens when they are reached."""

import candle_convert as cc
import numpy as np
import pytest
from candle_convert.runtime.base.limits import current, seconds, size

SIZES = [
    ("5GB", 5 * 10**9),
    ("2GiB", 2 * 2**30),
    ("1.5k", 1500),
    ("300M", 3 * 10**8),
    ("7", 7),
    (12, 12),
    ("64 MiB", 2**26),
]


@pytest.mark.parametrize(("text", "nbytes"), SIZES)
def test_sizes(text, nbytes):
    assert size(text) == nbytes


@pytest.mark.parametrize(("text", "value"), [("90", 90), ("10m", 600), ("1h", 3600), (5, 5), ("1.5s", 1.5)])
def test_seconds(text, value):
    assert seconds(text) == value


@pytest.mark.parametrize("text", ["", "GB", "5XB", "-1", "1e9", "0x10", "5 G B"])
def test_what_is_no_size(text):
    with pytest.raises(cc.UsageError):
        size(text)


def test_limits_hold_inside_their_block(tmp_path):
    cc.save_file({f"t{number}": np.zeros(2, np.float32) for number in range(20)}, tmp_path / "x.safetensors")
    before = current()
    with cc.limits(header="100"), pytest.raises(cc.LimitError, match="E-LIMIT-HEADER"):
        cc.open(tmp_path / "x.safetensors")
    with cc.limits(entries=10), pytest.raises(cc.LimitError, match="E-LIMIT-ENTRIES"):
        cc.open(tmp_path / "x.safetensors")
    with cc.limits(time=0), pytest.raises(cc.LimitError, match="E-LIMIT-TIME"):
        cc.open(tmp_path / "x.safetensors")
    with pytest.raises(cc.UsageError, match="E-LIMIT-NAME"), cc.limits(bytes=1):
        pass
    with cc.limits(**{"zip-ratio": "200"}) as changed:
        assert changed.zip_ratio == 200
    assert current() is before
    assert len(cc.open(tmp_path / "x.safetensors")) == 20

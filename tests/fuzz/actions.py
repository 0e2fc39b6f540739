"""What suites of models do with a file or directory, beside the commands: compute logits."""

from __future__ import annotations

import random

LOGITS = "candle_convert.tests.fuzz.actions:logits"


def logits(path: str) -> int:
    """Load a model and compute the logits of three tokens, then those of one more."""
    from candle_convert import models

    model = models.load(path, threads=1)
    _, cache = model.step([3, 4, 5])
    model.step([6], cache)
    return 0


def chosen(path: str, draw: random.Random, count: int = 2) -> list[tuple[str, ...]]:
    """Some actions on the model at a path, logits always among them."""
    others = (
        ("inspect", path),
        ("models", "show", path),
        ("check", path),
        ("convert", path, "{out}/hf", "-t", "safetensors"),
        ("convert", path, "{out}/m.gguf"),
        ("convert", path, "{out}/onnx", "-t", "onnx"),
        ("quantize", path, "{out}/q.gguf", "Q8_0"),
        ("generate", path, "-p", "ab", "--max-tokens", "3", "--threads", "1"),
        ("verify", path, path),
        ("hash", path),
    )
    return [(LOGITS, path), *draw.sample(others, count)]

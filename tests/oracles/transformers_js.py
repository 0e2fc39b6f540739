"""Transformers.js under Node: runs a program on a folder of models and returns what it prints as JSON."""

import json
import os
import subprocess
from pathlib import Path

import pytest

MODULES = os.environ.get("CANDLE_TRANSFORMERS_JS")
needs_node = pytest.mark.skipif(
    MODULES is None, reason="CANDLE_TRANSFORMERS_JS names no folder with @huggingface/transformers"
)
"""Marks tests that run such programs."""
BEGIN = """
import * as js from '@huggingface/transformers';
import { readFileSync } from 'fs';
js.env.allowRemoteModels = false;
js.env.localModelPath = process.argv[2];
const given = JSON.parse(readFileSync(process.argv[3]));
const plain = (tensor) => ({ dims: tensor.dims, data: Array.from(tensor.data, Number) });
const answer = await (async () => {
"""
END = """
})();
console.log(JSON.stringify(answer));
"""


def answered(body, folder, **given):
    """What the statements `body` return.

    They know the package as ``js``, the function ``plain`` of a tensor as dimensions and numbers, and ``given``.

    Args:
        folder: holds the folders of models.
    """
    script = Path(MODULES) / f"candle_{os.getpid()}.mjs"
    script.write_text(BEGIN + body + END)
    values = script.with_suffix(".json")
    values.write_text(json.dumps(given))
    try:
        command = ["node", str(script), str(folder), str(values)]
        found = subprocess.run(command, capture_output=True, text=True, timeout=300)
    finally:
        script.unlink()
        values.unlink()
    assert found.returncode == 0, found.stderr[-3000:] + found.stdout[-1000:]
    return json.loads(found.stdout.splitlines()[-1])

"""Run by test_memory: commands give the same on the device: text with all layers there and with one, perplexity, importance. And what fits is said.

    python generating_on_device.py FOLDER [all]

Perplexity and importance take the simulator longer, and are compared with ``all``.
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import io
from contextlib import redirect_stdout

import candle_convert as cc
import candle_convert.models.language.model as language
import language_files
import numpy as np
from candle_convert.convert.cli import run

language.ROOM = 8
language_files.WIDTH = language_files.INNER = 16
language_files.LAYERS, language_files.HEADS = 2, 2
language_files.BYTES, language_files.LETTERS = [], list(" abcdef")
language_files.TOKENS = ["<unk>", "<s>", "</s>", "▁", *"abcdef"]


def said(*arguments):
    out = io.StringIO()
    with redirect_stdout(out):
        code = run([*map(str, arguments), "--json"])
    return code, json.loads(out.getvalue())


folder = Path(sys.argv[1])
path = language_files.written(folder / "m.gguf", vocabulary=len(language_files.TOKENS))
asked = ("generate", path, "-p", "ab", "-n", 2, "--temp", 0, "--activations", "f32")
code, expected = said(*asked)
assert code == 0, expected
for options in (["cuda"], ["cuda:0", "--gpu-layers", 1]):
    code, found = said(*asked, "--device", *options)
    assert code == 0, found
    assert found["tokens"] == expected["tokens"], options
print("text")
code, found = said(*asked, "--device", "cuda", "--max-device-memory", "2KiB")
assert code == 6, found
assert found["error"]["code"] == "E-DEVICE-MEMORY"
print(found["error"]["message"])
if sys.argv[2:] != ["all"]:
    sys.exit()
(folder / "t.txt").write_text("abcabd" * 8)
scored = ("eval", path, "-d", folder / "t.txt", "--metric", "ppl", "--context", 16, "--chunks", 1)
(code, host), (_, device) = said(*scored), said(*scored, "--device", "cuda")
assert code == 0, host
assert abs(device["metrics"][0]["value"] / host["metrics"][0]["value"] - 1) < 1e-4
print("perplexity")
for name in ("cpu", "cuda"):
    assert said("imatrix", path, "-d", folder / "t.txt", "-o", folder / f"{name}.gguf", "--context", 16, "--chunks", 1, "--device", name)[0] == 0
arrays = [cc.load_file(folder / f"{name}.gguf") for name in ("cpu", "cuda")]
for name, array in arrays[0].items():
    np.testing.assert_allclose(arrays[1][name], array, rtol=1e-4, atol=1e-5)
print("importance")

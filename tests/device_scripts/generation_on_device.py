"""Language models by command: generated text, perplexity and importance matrices as on the CPU, and models that do not
fit.

    python generation_on_device.py FOLDER [all]

Perplexity and importance take the simulator longer, and are compared with ``all``.
"""

import io
import json
import sys
from contextlib import redirect_stdout
from pathlib import Path

import candle_convert as cc
import candle_convert.models.generation.decoder_states as states
import numpy as np
from candle_convert.convert.cli.main import run
from candle_convert.tests.builders import tiny_llama

states.INITIAL_CAPACITY = 8
tiny_llama.WIDTH = tiny_llama.INNER = 16
tiny_llama.LAYERS, tiny_llama.HEADS = 2, 2
tiny_llama.BYTES, tiny_llama.LETTERS = [], list(" abcdef")
tiny_llama.TOKENS = ["<unk>", "<s>", "</s>", "▁", *"abcdef"]


def said(*arguments):
    out = io.StringIO()
    with redirect_stdout(out):
        code = run([*map(str, arguments), "--json"])
    return code, json.loads(out.getvalue())


folder = Path(sys.argv[1])
path = tiny_llama.written(folder / "m.gguf", vocabulary=len(tiny_llama.TOKENS))
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
    assert (
        said(
            "imatrix",
            path,
            "-d",
            folder / "t.txt",
            "-o",
            folder / f"{name}.gguf",
            "--context",
            16,
            "--chunks",
            1,
            "--device",
            name,
        )[0]
        == 0
    )
arrays = [cc.load_file(folder / f"{name}.gguf") for name in ("cpu", "cuda")]
for name, array in arrays[0].items():
    np.testing.assert_allclose(arrays[1][name], array, rtol=1e-4, atol=1e-5)
print("importance")

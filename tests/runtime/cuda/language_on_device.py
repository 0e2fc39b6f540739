"""Run by test_quantized: a small language model whose weights are blocks, token by token on the device and on the CPU."""

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import candle_convert.models.language.model as language
import language_files
import numpy as np
from candle_convert.convert.cli import run
from candle_convert.convert.modelling import built, modelled
from candle_convert.convert.opening import open_model
from candle_convert.models.layers import window
from candle_convert.runtime.cuda.array import DeviceArray
from candle_convert.runtime.cuda.coded import Coded
from candle_convert.runtime.cuda.kernel import Launch
from candle_convert.runtime.cuda.plan import HostStep

language.ROOM, language.MOST, window.STEP = 8, 2, 4
language_files.WIDTH = language_files.INNER = 32
language_files.LAYERS, language_files.HEADS = 1, 2

with tempfile.TemporaryDirectory() as folder:
    language_files.written(Path(folder) / "f.gguf", **{"llama.attention.sliding_window": np.uint32(2)})
    path = Path(folder) / "m.gguf"
    assert run(["quantize", str(Path(folder) / "f.gguf"), str(path), "q8_0", "--pure", "--quiet"]) == 0
    host, device = (language.LanguageModel(built(modelled(open_model(path))), threads=1, activations="f32", device=name) for name in ("cpu", "cuda"))
    caches = host.start(1), device.start(1)
    for tokens in ([5], [7], [6], [9], [8], [5]):  # around the ring of four
        expected, found = (model.advance([tokens], cache) for model, cache in zip((host, device), caches, strict=True))
        np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-3 * np.abs(expected).max())
        assert found.argmax() == expected.argmax()
    states = list(caches[1].states.values())
    assert {state.shape[2] for state in states} == {4}
    assert all(isinstance(state, DeviceArray) for state in states)
    before = [id(state.bytes) for state in states]
    device.advance([[4]], caches[1])
    assert [id(state.bytes) for state in caches[1].states.values()] == before, "caches are written in place"
    steps = [step for plan in device.session(device._last).program.plans for step in plan.steps]
    print("on the CPU", sorted({(step.node.op.name, step.why) for step in steps if isinstance(step, HostStep)}))
    print("blocks", any(isinstance(item, Coded) for step in steps if isinstance(step, Launch) for item in step.arguments))

"""A small language model with block-quantized weights, token by token on the device and on the CPU."""

import tempfile
from pathlib import Path

import candle_convert.models.generation.language_model as language
import numpy as np
from candle_convert.convert.cli.main import run
from candle_convert.convert.load.bind import bind_model, build_graph
from candle_convert.convert.open.open_model import open_model
from candle_convert.runtime.cuda.element.block_quantized import QuantizedBuffer
from candle_convert.runtime.cuda.kernel.kernel import Launch
from candle_convert.runtime.cuda.memory.device_array import DeviceArray
from candle_convert.runtime.cuda.plan.plan import HostStep
from candle_convert.tests.builders import tiny_llama

language.LanguageModel.initial_capacity = 8
tiny_llama.WIDTH = tiny_llama.INNER = 32
tiny_llama.LAYERS, tiny_llama.HEADS = 1, 2

with tempfile.TemporaryDirectory() as folder:
    tiny_llama.written(Path(folder) / "f.gguf")
    path = Path(folder) / "m.gguf"
    assert run(["quantize", str(Path(folder) / "f.gguf"), str(path), "q8_0", "--pure", "--quiet"]) == 0
    host, device = (
        language.LanguageModel(
            build_graph(bind_model(open_model(path))), threads=1, activations="f32", placement=language.Placement(name)
        )
        for name in ("cpu", "cuda")
    )
    caches = host.start(1), device.start(1)
    for tokens in ([5], [7], [6], [9], [8], [5]):
        expected, found = (model.advance([tokens], cache) for model, cache in zip((host, device), caches, strict=True))
        np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-3 * np.abs(expected).max())
        assert found.argmax() == expected.argmax()
    states = list(caches[1].states.values())
    assert {state.shape[2] for state in states} == {8}
    assert all(isinstance(state, DeviceArray) for state in states)
    before = [id(state.bytes) for state in states]
    device.advance([[4]], caches[1])
    assert [id(state.bytes) for state in caches[1].states.values()] == before, "caches are written in place"
    steps = [step for plan in device.session(device._last).program.plans for step in plan.steps]
    print("on the CPU", sorted({(step.node.op.name, step.why) for step in steps if isinstance(step, HostStep)}))
    print(
        "blocks",
        any(isinstance(item, QuantizedBuffer) for step in steps if isinstance(step, Launch) for item in step.arguments),
    )

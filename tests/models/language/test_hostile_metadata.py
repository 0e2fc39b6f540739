"""GGUF metadata that no model has: one clear error, before memory is taken or layers are gone through."""

import math
import resource
import subprocess
import sys

import candle_convert as cc
import numpy as np
import pytest
from candle_convert.convert.load.bind import bind_model, build_graph
from candle_convert.runtime.contract.architecture import GGUF
from candle_convert.tests.fuzz.synthetic import synthetic

U32, F32 = np.uint32, np.float32
LLAMA = {
    "rotated elements of 8 GiB": ({"rope.dimension_count": U32(2**32 - 1)}, "rope.dimension_count"),
    "more rotated elements than a head has": ({"rope.dimension_count": U32(16)}, "rope_freqs"),
    "an odd number of rotated elements": ({"rope.dimension_count": U32(7)}, "multiple of 2"),
    "heads of 64 GiB": ({"attention.key_length": U32(2**31 - 1)}, "attn_q"),
    "values longer than heads": ({"attention.value_length": U32(2**30)}, "attention.value_length"),
    "no heads": ({"attention.head_count": U32(0)}, "attention.head_count is|attention.head_count of"),
    "heads that nobody shares": ({"attention.head_count_kv": U32(3)}, "not divisible by 3"),
    "heads of each layer": ({"attention.head_count": np.array([4, 4], U32)}, "a list of 2 is not an integer"),
    "65,535 layers": ({"block_count": U32(65535)}, "more than 1,024"),
    "more layers than weights": ({"block_count": U32(1000)}, "says 1,000 layers, the file has weights of 2"),
    "a switch for a number": ({"block_count": True}, "true is not an integer"),
    "an infinite epsilon": ({"attention.layer_norm_rms_epsilon": F32(math.inf)}, "not a finite number"),
    "a base of NaN": ({"rope.freq_base": F32(math.nan)}, "not a finite number"),
    "a base that divides by zero": ({"rope.freq_base": F32(1)}, "not above 1"),
    "a string for a width": ({"embedding_length": "wide"}, '"wide" is not an integer'),
}  # fmt: skip


PROGRAM = """
import resource, sys
import candle_convert as cc
import numpy as np
from candle_convert.convert.load.bind import build_graph, bind_model
build_graph(bind_model(cc.open(sys.argv[1])))
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize() + (64 << 20)
resource.setrlimit(resource.RLIMIT_AS, (size, size))
for key in sys.argv[2:]:
    for value in (2**32 - 1, 2**31 - 1, 2**20):
        graph = cc.open(sys.argv[1])
        graph.metadata[key] = np.uint32(value)
        try:
            build_graph(bind_model(graph))
        except cc.FormatError as error:
            print(error)
"""
"""Builds the model of a file, then with huge values in place of each key, 64 MiB being left."""


def written(path, **changes):
    model = synthetic("llama", GGUF)
    cc.save_file(
        model.weights, path, metadata={**model.said, **{f"llama.{key}": value for key, value in changes.items()}}
    )
    return path


@pytest.mark.parametrize("what", LLAMA)
def test_refused_with_the_key(what, tmp_path):
    changes, named = LLAMA[what]
    with pytest.raises(cc.FormatError, match=named) as caught:
        bind_model(cc.open(written(tmp_path / "m.gguf", **changes)))
    assert caught.value.code in ("E-ARCH-KEY", "E-ARCH-SHAPE", "E-ARCH-MISSING")
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("architecture", ["llama", "phi3", "deepseek_v2", "mamba2", "mixtral", "rwkv7", "lfm2", "gpt2"])
def test_every_key_may_be_huge(architecture, tmp_path):
    """Under a limit on memory and processor time that only an error or a small model stays within."""
    model, fine = synthetic(architecture, GGUF), tmp_path / "m.gguf"
    cc.save_file(model.weights, fine, metadata=model.said)
    keys = [
        key
        for key, value in model.said.items()
        if isinstance(value, np.uint32) and not key.startswith(("general.", "tokenizer."))
    ]
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    subprocess.run([sys.executable, "-c", PROGRAM, fine, *keys], check=True, timeout=600)
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before < 5 + 3 * len(keys)


@pytest.mark.parametrize(
    "factors", [np.ones(3), np.ones(4 + 1), np.ones((2, 2)), np.ones(2**20)], ids=["3", "5", "2x2", "2^20"]
)
def test_factors_of_another_size(factors, tmp_path):
    graph = cc.open(written(tmp_path / "m.gguf"))
    graph.weights["rope_freqs.weight"] = cc.StoredTensor.of(factors.astype(F32))
    with pytest.raises(cc.FormatError, match=r"rope_freqs\.weight is .*, not \[4\]"):
        bind_model(graph)


def test_factors_of_one_are_no_scaling_that_divides_by_zero(tmp_path):
    graph = cc.open(written(tmp_path / "m.gguf"))
    graph.weights["rope_freqs.weight"] = cc.StoredTensor.of(np.ones(4, F32))
    assert build_graph(bind_model(graph)).nodes


@pytest.mark.parametrize("shape", [(0, 32), ()], ids=["no elements", "no axes"])
def test_weights_without_elements(shape, tmp_path):
    graph = cc.open(written(tmp_path / "m.gguf"))
    graph.weights["token_embd.weight"] = cc.StoredTensor.of(np.zeros(shape, F32))
    with pytest.raises(cc.FormatError, match="token_embd"):
        bind_model(graph)

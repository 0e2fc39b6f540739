"""Encoders on the device: the CPU's bytes, under the simulator or on a card; and machine code in which no product and sum are joined."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

from candle_convert.ops.quants import codecs
from candle_convert.runtime.cuda.machine import SIMULATED, state
from candle_convert.runtime.errors import UnsupportedError

FULL = os.environ.get("CANDLE_FULL") == "1"
SAMPLED = [("q8_0", False), ("q4_0", True), ("iq4_nl", False)]
COMPARED = ["q8_0", "q5_1", "q3_k", "q4_k", "iq4_xs", "tq2_0", "mxfp4"]
"""Types whose bytes are compared unless CANDLE_FULL=1."""
CHIPS = [(7, 5), (8, 0), (9, 0), (12, 1)]
LATTICES = {"iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s"}
KINDS = ("int64", "int64", "float32*", "float32*", "float32*", "uint8*")


def encodable():
    return {codec.dtype.name: codec for codec in codecs().values() if codec.encoder is not None}


def test_bytes_are_the_same():
    names = sorted(encodable().keys() - LATTICES) if FULL or state().devices else COMPARED
    environment = {**os.environ, "OMP_NUM_THREADS": "1"} | ({} if state().devices else {"NUMBA_ENABLE_CUDASIM": "1"})
    script = Path(__file__).parent / "encoders_on_device.py"
    done = subprocess.run([sys.executable, "-W", "ignore", str(script), *names], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    assert set(done.stdout.split()) == set(names)


@pytest.mark.skipif(SIMULATED, reason="the simulator compiles nothing")
@pytest.mark.timeout(3600 if FULL else 300)
def test_nothing_is_contracted():
    """One chip for each of a few types unless CANDLE_FULL=1."""
    from candle_convert.ops.quants.device.encoding import kernel_of, lane_encoder, mean_squares

    every = [(name, weighted) for name, codec in encodable().items() if name not in LATTICES for weighted in (False, True)
             if not weighted or lane_encoder(codec, True).weighted]
    chosen = [(*item, cc) for item in every for cc in CHIPS] if FULL else [(*item, cc) for item, cc in zip(SAMPLED, CHIPS, strict=False)]
    texts = {item: kernel_of(encodable()[item[0]], item[1]).ptx(KINDS, item[2]) for item in chosen}
    texts["means"] = mean_squares().ptx(("int64", "int64", "float32*", "float32*"), CHIPS[-1])
    for item, text in texts.items():
        assert "mul.rn.f32" in text, item
        assert not [word for word in ("fma.", "div.full", "div.approx", "sqrt.approx", ".ftz") if word in text], item


def test_types_that_stay_on_the_cpu_say_so():
    from candle_convert.ops.quants.device.encoding import kernel_of

    for name in LATTICES:
        with pytest.raises(UnsupportedError) as caught:
            kernel_of(encodable()[name], False)
        assert "many scales" in str(caught.value)


def test_the_command_makes_the_same_file(tmp_path):
    """K-quants and a type whose search stays on the CPU, which is noted."""
    script = (
        "import sys, numpy as np\n"
        "from candle_convert.convert import api\n"
        "from candle_convert.convert.cli import run\n"
        "rng = np.random.default_rng(0)\n"
        "names = ['blk.0.attn_q.weight', 'blk.0.ffn_up.weight']\n"
        "api.save_file({name: rng.standard_normal((8, 256)).astype(np.float16) for name in names}, 'in.gguf')\n"
        "for device in ('cpu', 'cuda'):\n"
        "    options = ['--device', device, '--tensor-type', 'attn=iq3_s', '-f', '--pure']\n"
        "    assert run(['quantize', 'in.gguf', f'{device}.gguf', 'q6_k', *options]) == 0\n"
    )
    environment = {**os.environ, "OMP_NUM_THREADS": "1"} | ({} if state().devices else {"NUMBA_ENABLE_CUDASIM": "1"})
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert (tmp_path / "cuda.gguf").read_bytes() == (tmp_path / "cpu.gguf").read_bytes()
    assert "blocks of iq3_s are encoded on the CPU" in done.stdout + done.stderr

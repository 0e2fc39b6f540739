"""Encoders on the device: the CPU's bytes, under the simulator or on a card; and machine code in which no product and
sum are joined."""

import pytest

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

from candle_convert.runtime.cuda.device.device import SIMULATED, cuda_support
from candle_convert.runtime.tensor.block_codec import codecs
from candle_convert.tests.builders.paths import DEVICE_SCRIPTS
from candle_convert.tests.builders.sampling import full
from candle_convert.tests.device_scripts.runner import run_script

FULL = full()
COMPARED = [
    "q8_0",
    "q5_1",
    "q3_k",
    "q4_k",
    "iq4_xs",
    "tq2_0",
    "mxfp4",
    "iq1_s",
    "iq1_m",
    "iq2_xxs",
    "iq2_xs",
    "iq2_s",
    "iq3_xxs",
    "iq3_s",
]
"""Types whose bytes are compared unless CANDLE_FULL=1."""
ROUNDED = [("q8_0", (7, 5)), ("q5_0", (8, 0)), ("iq4_nl", (9, 0)), ("iq1_s", (12, 1))]
"""Types whose machine code is looked at unless CANDLE_FULL=1, for one chip each."""


def encodable():
    return {codec.dtype.name: codec for codec in codecs().values() if codec.encoder is not None}


def test_bytes_are_the_same():
    names = sorted(encodable()) if FULL or cuda_support().devices else COMPARED
    assert set(run_script(DEVICE_SCRIPTS / "block_encoders.py", *names).split()) == set(names)


@pytest.mark.parametrize("case", ["bytes", "bounded", "failing", "short", "freed"])
def test_lanes(case):
    assert run_script(DEVICE_SCRIPTS / "encoder_streams.py", case).split() == [case]


@pytest.mark.skipif(SIMULATED, reason="the simulator compiles nothing")
@pytest.mark.parametrize("kind", range(3))
def test_what_encoders_read_compiles(kind):
    from candle_convert.tests.device_scripts import every_kernel

    assert every_kernel.wrong(*every_kernel.of_read()[kind], encoder=True, chips=[every_kernel.CHIPS[kind]]) is None


@pytest.mark.skipif(SIMULATED, reason="the simulator compiles nothing")
@pytest.mark.timeout(7200)
def test_every_operation_rounds_on_its_own():
    """Otherwise the bytes would not be the CPU's. Where it is not all of them, the kernel with importance of a few
    types."""
    from candle_convert.tests.device_scripts import every_kernel

    chosen = (
        [(codec, every_kernel.CHIPS) for codec in encodable().values()]
        if FULL
        else [(encodable()[name], [cc]) for name, cc in ROUNDED]
    )
    for codec, chips in chosen:
        kernels = every_kernel.of_encoder(codec)
        for kernel, kinds in kernels if FULL else kernels[-1:]:
            assert every_kernel.wrong(kernel, kinds, encoder=True, chips=chips) is None


@pytest.mark.skipif(SIMULATED, reason="the simulator compiles nothing")
@pytest.mark.parametrize(
    "text", ["fma.rn.f32", "mul.f32", "add.f32", "sub.f32", "div.full.f32", "sqrt.approx.f32", "add.rn.ftz.f32"]
)
def test_what_may_be_joined_is_seen(text):
    from candle_convert.tests.device_scripts import every_kernel

    assert every_kernel.JOINED.findall(f"\t{text} \t%f1, %f2, %f3;")
    assert not every_kernel.JOINED.findall(
        "\tadd.rn.f32 %f1, %f2, %f3;\tdiv.rn.f32 %f1, %f2, %f3;\tmul.wide.u32 %rd2, %r1, 4;"
    )


def test_the_command_makes_the_same_file(tmp_path):
    """A K-quant and a type with a lattice."""
    script = tmp_path / "quantizing.py"
    script.write_text(
        "import numpy as np\n"
        "from candle_convert.convert.api import convert as api\n"
        "from candle_convert.convert.cli.main import run\n"
        "rng = np.random.default_rng(0)\n"
        "names = ['blk.0.attn_q.weight', 'blk.0.ffn_up.weight']\n"
        "api.save_file({name: rng.standard_normal((2, 256)).astype(np.float16) for name in names}, 'in.gguf')\n"
        "for device in ('cpu', 'cuda'):\n"
        "    options = ['--device', device, '--tensor-type', 'attn=iq3_s', '-f', '--pure']\n"
        "    options += ['--max-device-memory', '1MiB'] if device == 'cuda' else []\n"
        "    assert run(['quantize', 'in.gguf', f'{device}.gguf', 'q6_k', *options]) == 0\n"
        "options = ['q6_k', '--pure', '-f', '--max-device-memory']\n"
        "assert run(['quantize', 'in.gguf', 'x.gguf', *options, '1MiB']) == 2\n"
        "assert run(['quantize', 'in.gguf', 'x.gguf', *options, '1KiB', '--device', 'cuda']) == 6\n"
    )
    run_script(script, cwd=tmp_path)
    assert (tmp_path / "cuda.gguf").read_bytes() == (tmp_path / "cpu.gguf").read_bytes()

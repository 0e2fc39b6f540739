"""Model directories that are quantized in one pass: the same file as converting first, and as llama.cpp's own library
makes of that."""

import json
from pathlib import Path

import candle_convert as cc
import pytest
from candle_convert.convert.cli.main import run
from candle_convert.tests.oracles.llama_quantize import quantized
from candle_convert.tests.oracles.transformers import BASE, cases, made

WIDE = {**BASE, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "vocab_size": 128}
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2, "intermediate_size": 256}
CASES = [*cases("LlamaForCausalLM", "llama", llama={"tie_word_embeddings": (True, False)}),
         *cases("MixtralForCausalLM", "mixtral", mixtral=EXPERTS),
         *cases("Qwen2ForCausalLM", "qwen2", qwen2={})]  # fmt: skip
TYPES = ("Q4_K_M", "Q8_0", "IQ4_XS", "F16", "COPY")
ONE_PASS = [(case, name) for case in CASES for name in TYPES if name == "Q4_K_M" or case.name.startswith("llama")]
"""Types are chosen alike in all architectures: those of one stand for the others'."""


@pytest.fixture(params=CASES, ids=lambda case: case.name, scope="module")
def model(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "tiny-model"
    case = request.param
    made(type(case)(**{**vars(case), "base": WIDE}), 0, folder / "wide")
    return folder / "wide"


@pytest.fixture(params=["f32", "bf16"])
def stored(request, model, tmp_path):
    """The model with its weights stored in a dtype."""
    cc.convert(model, tmp_path / "tiny", to="safetensors", dtype=request.param)
    return tmp_path / "tiny"


@pytest.mark.parametrize(
    ("model", "file_type"), ONE_PASS, indirect=["model"], ids=lambda each: getattr(each, "name", each)
)
def test_one_pass_is_two(stored, tmp_path, file_type):
    assert run(["convert", str(stored), str(tmp_path / "plain.gguf"), "-q"]) == 0
    assert run(["quantize", str(tmp_path / "plain.gguf"), str(tmp_path / "two.gguf"), file_type, "-q"]) == 0
    assert run(["quantize", str(stored), str(tmp_path / "one.gguf"), file_type, "-q"]) == 0
    assert run(["convert", str(stored), str(tmp_path / "same.gguf"), "--quantize", file_type, "-q"]) == 0
    wanted = (tmp_path / "two.gguf").read_bytes()
    assert (tmp_path / "one.gguf").read_bytes() == wanted
    assert (tmp_path / "same.gguf").read_bytes() == wanted
    types = {tensor.dtype.name for tensor in cc.open(tmp_path / "one.gguf").weights.values()}
    assert "f32" in types
    assert len(types) > 1 or stored_in(stored) == "f32"


def stored_in(folder):
    return cc.open(folder)["model.embed_tokens.weight"].dtype.name


@pytest.mark.parametrize("file_type", ["Q4_K_M", "Q8_0", "IQ4_XS"])
def test_as_llama_quantizes_what_was_converted(stored, tmp_path, file_type):
    cc.convert(stored, tmp_path / "plain.gguf")
    quantized(tmp_path / "plain.gguf", tmp_path / "theirs.gguf", file_type)
    assert run(["quantize", str(stored), str(tmp_path / "ours.gguf"), file_type, "-q"]) == 0
    assert (tmp_path / "ours.gguf").read_bytes() == (tmp_path / "theirs.gguf").read_bytes()


def test_types_go_by_the_names_of_the_output(model, tmp_path):
    assert (
        run(
            [
                "convert",
                str(model),
                str(tmp_path / "q.gguf"),
                "--quantize",
                "Q8_0",
                "--tensor-type",
                r"blk\.0\.attn_v=q5_k",
                "-q",
            ]
        )
        == 0
    )
    assert cc.open(tmp_path / "q.gguf")["blk.0.attn_v.weight"].dtype.name == "q5_k"


def test_options_that_contradict(model, tmp_path, capsys):
    for extra in (["--dtype", "f16"], ["--keep-quantized"]):
        assert run(["convert", str(model), str(tmp_path / "q.gguf"), "--quantize", "Q8_0", *extra, "--json"]) == 2
        assert json.loads(capsys.readouterr().out)["error"]["code"] == "E-OPTION"
    assert run(["convert", str(model), str(tmp_path / "q.onnx"), "--quantize", "Q8_0"]) == 2
    assert not list(Path(tmp_path).iterdir())

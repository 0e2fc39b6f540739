"""Importance matrices of tiny models, against the rows that transformers' own layers get."""

import os
import re
import subprocess
from pathlib import Path

import candle_convert as cc
import gguf
import numpy as np
import pytest
from candle_convert.convert.cli.main import run
from candle_convert.convert.load.bind import bind_model
from candle_convert.convert.quantize.observe_importance import observe
from candle_convert.tests.builders.encoder_decoder_cases import T5
from candle_convert.tests.builders.imatrix_files import old_bytes, write_gguf
from candle_convert.tests.builders.trained_tokenizers import byte_bpe, corpus
from candle_convert.tests.oracles.transformers import BASE, Case, made

CONTEXT, PIECES = 64, 2
SIZES = {**BASE, "vocab_size": 700}
LLAMA = Case("llama", "LlamaForCausalLM", {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}, base=SIZES)
PHI = Case("phi3", "Phi3ForCausalLM", {"architectures": ["Phi3ForCausalLM"], "model_type": "phi3"}, base=SIZES)
MIXTRAL = Case(
    "mixtral",
    "MixtralForCausalLM",
    {
        "architectures": ["MixtralForCausalLM"],
        "model_type": "mixtral",
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
    },
    base=SIZES,
)
QWEN = Case(
    "qwen3",
    "Qwen3ForCausalLM",
    {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "head_dim": 32},
    base=SIZES,
)
IMATRIX = Path(os.environ.get("CANDLE_LIBLLAMA", "/nowhere/libllama.so")).parent / "llama-imatrix"
BESIDE = {**os.environ, "LD_LIBRARY_PATH": str(IMATRIX.parent)}
LAYERS = [
    (
        LLAMA,
        {
            "self_attn.q_proj": ["attn_q", "attn_k", "attn_v"],
            "self_attn.o_proj": ["attn_output"],
            "mlp.up_proj": ["ffn_up", "ffn_gate"],
            "mlp.down_proj": ["ffn_down"],
        },
    ),
    (
        PHI,
        {
            "self_attn.qkv_proj": ["attn_qkv"],
            "self_attn.o_proj": ["attn_output"],
            "mlp.gate_up_proj": ["ffn_up"],
            "mlp.down_proj": ["ffn_down"],
        },
    ),
    (MIXTRAL, {"self_attn.q_proj": ["attn_q", "attn_k", "attn_v"], "mlp.gate": ["ffn_gate_inp"]}),
]
"""The layers whose rows tensors of GGUF files get."""
BERT = Case(
    "bert",
    "BertModel",
    {"architectures": ["BertModel"], "model_type": "bert"},
    base={**SIZES, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 128},
)
T5_MODEL = Case(
    "t5",
    "T5ForConditionalGeneration",
    {"architectures": ["T5ForConditionalGeneration"], "model_type": "t5", "feed_forward_proj": "gated-gelu"},
    base={**T5, "vocab_size": 700},
)
ENCODERS = [
    (
        BERT,
        [
            ("self.query", "encoder", "attn_q"),
            ("self.key", "encoder", "attn_k"),
            ("self.value", "encoder", "attn_v"),
            ("attention.output.dense", "encoder", "attn_output"),
            ("intermediate.dense", "encoder", "ffn_up"),
            ("output.dense", "encoder", "ffn_down"),
        ],
    ),
    (
        T5_MODEL,
        [
            *(
                (f"SelfAttention.{part}", f"{side}.block", f"attn_{part}")
                for side in ("encoder", "decoder")
                for part in "qkvo"
            ),
            *((f"EncDecAttention.{part}", "decoder.block", f"cross_attn_{part}") for part in "qkvo"),
            *(
                (f"DenseReluDense.{module}", f"{side}.block", f"ffn_{part}")
                for side in ("encoder", "decoder")
                for module, part in (("wi_0", "gate"), ("wi_1", "up"), ("wo", "down"))
            ),
        ],
    ),
]
"""Modules, how their names begin, and the tensors of GGUF files that get their rows."""


def observed(case, tmp_path, *options):
    """The model as transformers has it, pieces of a text, and the sums and counts of our file."""
    import torch

    model = made(case, 1, tmp_path / "model")
    byte_bpe(()).save(str(tmp_path / "model" / "tokenizer.json"))
    (tmp_path / "text.txt").write_text("\n".join(corpus()[:60]))
    command = [
        "imatrix",
        str(tmp_path / "model"),
        "-d",
        str(tmp_path / "text.txt"),
        "-o",
        str(tmp_path / "i.gguf"),
        "--context",
        str(CONTEXT),
    ]
    assert run([*command, "--chunks", str(PIECES), *options]) == 0
    reader = gguf.GGUFReader(tmp_path / "i.gguf")
    assert reader.fields["general.type"].contents() == "imatrix"
    assert reader.fields["imatrix.chunk_count"].contents() == PIECES
    ids = byte_bpe(()).encode((tmp_path / "text.txt").read_text(), add_special_tokens=False).ids[: CONTEXT * PIECES]
    return model, torch.tensor(ids).reshape(PIECES, CONTEXT), {tensor.name: tensor.data for tensor in reader.tensors}


def rows_of(model, ids, names):
    """What the modules of each name get, for each layer: [rows, columns]."""
    import torch

    seen = {}
    for name, module in model.named_modules():
        if any(f".{name}".endswith(f".{ending}") for ending in names):
            module.register_forward_hook(
                lambda module, given, result, name=name: seen.__setitem__(name, given[0].detach())
            )
    with torch.no_grad():
        model(ids, **({"decoder_input_ids": ids} if model.config.is_encoder_decoder else {}))
    return {name: rows.double().reshape(-1, rows.shape[-1]).numpy() for name, rows in seen.items()}


@pytest.mark.parametrize(("case", "names"), LAYERS, ids=lambda each: getattr(each, "name", ""))
def test_sums_of_squares(case, names, tmp_path):
    model, ids, found = observed(case, tmp_path)
    for name, rows in rows_of(model, ids, names).items():
        _, _, layer, part = name.split(".", 3)
        for tensor in names[part]:
            stem = f"blk.{layer}.{tensor}.weight"
            np.testing.assert_allclose(found[f"{stem}.in_sum2"][0], (rows**2).sum(0), rtol=1e-4)
            assert found[f"{stem}.counts"].tolist() == [[ids.numel()]]
    assert not [name for name in found if name.startswith(("output", "token_embd"))]


@pytest.mark.parametrize(("case", "names"), ENCODERS, ids=lambda each: getattr(each, "name", ""))
def test_sums_of_squares_of_encoders_and_encoder_decoders(case, names, tmp_path):
    """A decoder predicts the piece that its encoder reads."""
    model, ids, found = observed(case, tmp_path)
    matched = set()
    for name, rows in rows_of(model, ids, [module for module, _, _ in names]).items():
        layer = re.search(r"\d+", name)[0]
        for module, start, tensor in names:
            if name.startswith(start) and name.endswith(f".{module}"):
                side = {"encoder.block": "enc.", "decoder.block": "dec."}.get(start, "")
                stem = f"{side}blk.{layer}.{tensor}.weight"
                np.testing.assert_allclose(found[f"{stem}.in_sum2"][0], (rows**2).sum(0), rtol=1e-4)
                assert found[f"{stem}.counts"].tolist() == [[ids.numel()]]
                matched.add(stem)
                break
    assert {name.rpartition(".")[0] for name in found} == matched


def test_experts_get_the_rows_of_their_tokens(tmp_path):
    model, ids, found = observed(MIXTRAL, tmp_path)
    rows = rows_of(model, ids, ["mlp.gate"])
    for layer, block in enumerate(model.model.layers):
        hidden = rows[f"model.layers.{layer}.mlp.gate"]
        chosen = np.argsort(-(hidden @ block.mlp.gate.weight.detach().double().numpy().T), axis=1)[:, :2]
        both = block.mlp.experts.gate_up_proj.detach().double().numpy()
        for expert in range(4):
            mine = hidden[(chosen == expert).any(1)]
            gate, up = np.split(mine @ both[expert].T, 2, axis=1)
            inner = gate / (1 + np.exp(-gate)) * up
            for tensor, expected in (("ffn_gate_exps", mine), ("ffn_up_exps", mine), ("ffn_down_exps", inner)):
                stem = f"blk.{layer}.{tensor}.weight"
                np.testing.assert_allclose(found[f"{stem}.in_sum2"][expert], (expected**2).sum(0), rtol=1e-4, atol=1e-6)
                assert found[f"{stem}.counts"][expert].tolist() == [len(mine)]


@pytest.mark.parametrize("case", [LLAMA, QWEN], ids=lambda case: case.name)
@pytest.mark.skipif(not IMATRIX.exists(), reason="CANDLE_LIBLLAMA names no libllama with llama-imatrix beside it")
def test_as_llama_imatrix(case, tmp_path):
    """On models with SiLU, with llama.cpp's cache in f32: it rounds GELU to f16 by a table, and keys and values for its
    flash attention."""
    made(case, 1, tmp_path / "model")
    byte_bpe(()).save(str(tmp_path / "model" / "tokenizer.json"))
    (tmp_path / "text.txt").write_text("\n".join(corpus()[:200]))
    model, text, theirs, ours = (str(tmp_path / name) for name in ("m.gguf", "text.txt", "theirs.gguf", "ours.gguf"))
    assert run(["convert", str(tmp_path / "model"), model]) == 0
    exact = ["-ctk", "f32", "-ctv", "f32", "-fa", "off", "--no-ppl", "-t", "1"]
    subprocess.run(
        [IMATRIX, "-m", model, "-f", text, "-o", theirs, "-c", "512", *exact],
        check=True,
        capture_output=True,
        env=BESIDE,
    )
    assert run(["imatrix", model, "-d", text, "-o", ours]) == 0
    one, other = ({tensor.name: tensor.data for tensor in gguf.GGUFReader(path).tensors} for path in (ours, theirs))
    assert one.keys() == other.keys()
    assert (
        gguf.GGUFReader(ours).fields["imatrix.chunk_count"].contents()
        == gguf.GGUFReader(theirs).fields["imatrix.chunk_count"].contents()
    )
    for name in one:
        np.testing.assert_allclose(
            one[name].reshape(-1), other[name].reshape(-1), rtol=1e-4 if name.endswith("sum2") else 0
        )


def test_files_are_added_to_one_another(tmp_path):
    found = observed(MIXTRAL, tmp_path)[2]
    (tmp_path / "again.txt").write_text("\n".join(corpus()[60:120]))
    context = ["--context", str(CONTEXT)]
    both, again = str(tmp_path / "both.gguf"), str(tmp_path / "again.gguf")
    texts = ["-d", str(tmp_path / "again.txt"), "--chunks", "3", *context]
    assert run(["imatrix", str(tmp_path / "model"), *texts, "-o", again]) == 0
    assert run(["imatrix", str(tmp_path / "model"), *texts, "--in-file", str(tmp_path / "i.gguf"), "-o", both]) == 0
    assert (
        run(
            [
                "imatrix",
                "--in-file",
                str(tmp_path / "i.gguf"),
                "--in-file",
                again,
                "-o",
                str(tmp_path / "merged.gguf"),
                *context,
            ]
        )
        == 0
    )
    other, run_on, merged = (gguf.GGUFReader(path) for path in (again, both, tmp_path / "merged.gguf"))
    added = {tensor.name: tensor.data for tensor in other.tensors}
    for file in (run_on, merged):
        for tensor in file.tensors:
            np.testing.assert_allclose(tensor.data, found[tensor.name] + added[tensor.name], rtol=1e-6)
        assert file.fields["imatrix.chunk_count"].contents() == PIECES + 3
        assert file.fields["imatrix.datasets"].contents() == [str(tmp_path / "text.txt"), str(tmp_path / "again.txt")]


def test_what_cannot_be_merged(tmp_path, capsys):
    sums = {"blk.0.a.weight.in_sum2": np.ones((1, 8), np.float32), "blk.0.a.weight.counts": np.array([[4]], np.float32)}
    one = write_gguf(tmp_path / "one.gguf", sums)
    other = write_gguf(tmp_path / "other.gguf", {**sums, "blk.0.a.weight.in_sum2": np.ones((1, 9), np.float32)})
    bad = write_gguf(tmp_path / "bad.gguf", {**sums, "blk.0.a.weight.counts": np.array([[np.nan]], np.float32)})
    out = ["-o", str(tmp_path / "o.gguf")]
    for files, code in (((one, other), 3), ((bad,), 3), ((), 2)):
        assert run(["imatrix", *(word for file in files for word in ("--in-file", file)), *out]) == code
    (tmp_path / "old.dat").write_bytes(old_bytes({"blk.0.a.weight": (2, np.full(8, 6.0))}))
    assert run(["imatrix", "--in-file", one, "--in-file", str(tmp_path / "old.dat"), "--context", "16", *out]) == 0
    data = {tensor.name: tensor.data for tensor in gguf.GGUFReader(tmp_path / "o.gguf").tensors}
    assert data["blk.0.a.weight.in_sum2"].tolist() == [[1 + 6.0 * 16] * 8]
    assert data["blk.0.a.weight.counts"].tolist() == [[4 + 2 * 16]]
    assert "E-IMATRIX-SHAPE" in capsys.readouterr().err


def test_the_output_matrix_where_it_is_asked_for_and_quantize_takes_the_file(tmp_path, capsys):
    model, ids, found = observed(LLAMA, tmp_path, "--process-output")
    rows = rows_of(model, ids, ["lm_head"])["lm_head"]
    np.testing.assert_allclose(found["output.weight.in_sum2"][0], (rows**2).sum(0), rtol=1e-4)
    command = [
        "quantize",
        str(tmp_path / "model"),
        str(tmp_path / "q.gguf"),
        "IQ4_NL",
        "--imatrix",
        str(tmp_path / "i.gguf"),
    ]
    capsys.readouterr()
    assert run(command) == 0
    assert "imatrix" not in capsys.readouterr().err
    assert (
        run(["imatrix", str(tmp_path / "model"), "-d", str(tmp_path / "text.txt"), "-o", str(tmp_path / "i.gguf")]) == 5
    )


@pytest.mark.parametrize(
    ("ids", "code"), [([[700] * 8], "E-EVAL-VOCABULARY"), ([[5] * 129], "E-IMATRIX-CONTEXT")], ids=["id", "length"]
)
def test_pieces_that_a_model_cannot_read(ids, code, tmp_path):
    made(BERT, 0, tmp_path)
    with pytest.raises(cc.UsageError, match=code):
        observe(bind_model(cc.open(tmp_path)), [np.array(piece) for piece in ids])

"""Importance matrices of tiny models, against the rows that transformers' own layers get."""

import gguf
import numpy as np
import pytest
from candle_convert.convert.cli import run
from checkpoints import BASE, Case, made
from tokenizers_made import byte_bpe, corpus

CONTEXT, PIECES = 64, 2
SIZES = {**BASE, "vocab_size": 700}
LLAMA = Case("llama", "LlamaForCausalLM", {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}, base=SIZES)
PHI = Case("phi3", "Phi3ForCausalLM", {"architectures": ["Phi3ForCausalLM"], "model_type": "phi3"}, base=SIZES)
MIXTRAL = Case("mixtral", "MixtralForCausalLM", {
    "architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2}, base=SIZES)  # fmt: skip
LAYERS = [
    (LLAMA, {"self_attn.q_proj": ["attn_q", "attn_k", "attn_v"], "self_attn.o_proj": ["attn_output"], "mlp.up_proj": ["ffn_up", "ffn_gate"],
            "mlp.down_proj": ["ffn_down"]}),
    (PHI, {"self_attn.qkv_proj": ["attn_qkv"], "self_attn.o_proj": ["attn_output"], "mlp.gate_up_proj": ["ffn_up"], "mlp.down_proj": ["ffn_down"]}),
    (MIXTRAL, {"self_attn.q_proj": ["attn_q", "attn_k", "attn_v"], "mlp.gate": ["ffn_gate_inp"]}),
]  # fmt: skip
"""The layers whose rows tensors of GGUF files get."""


def observed(case, tmp_path, *options):
    """The model as transformers has it, pieces of a text, and the sums and counts of our file."""
    import torch

    model = made(case, 1, tmp_path / "model")
    byte_bpe(()).save(str(tmp_path / "model" / "tokenizer.json"))
    (tmp_path / "text.txt").write_text("\n".join(corpus()[:60]))
    command = ["imatrix", str(tmp_path / "model"), "-d", str(tmp_path / "text.txt"), "-o", str(tmp_path / "i.gguf"), "--context", str(CONTEXT)]
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
            module.register_forward_hook(lambda module, given, result, name=name: seen.__setitem__(name, given[0].detach()))
    with torch.no_grad():
        model(ids)
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


def test_the_output_matrix_where_it_is_asked_for_and_quantize_takes_the_file(tmp_path, capsys):
    model, ids, found = observed(LLAMA, tmp_path, "--process-output")
    rows = rows_of(model, ids, ["lm_head"])["lm_head"]
    np.testing.assert_allclose(found["output.weight.in_sum2"][0], (rows**2).sum(0), rtol=1e-4)
    command = ["quantize", str(tmp_path / "model"), str(tmp_path / "q.gguf"), "IQ4_NL", "--imatrix", str(tmp_path / "i.gguf")]
    assert run(command) == 0
    assert "imatrix" not in capsys.readouterr().err
    assert run(["imatrix", str(tmp_path / "model"), "-d", str(tmp_path / "text.txt"), "-o", str(tmp_path / "i.gguf")]) == 5

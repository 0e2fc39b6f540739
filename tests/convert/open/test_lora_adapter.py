"""LoRA adapters merged into weights: against PEFT where it is installed, and against the definition."""

import json
import math
import shutil
from pathlib import Path

import candle_convert as cc
import numpy as np
import pytest
import torch
from candle_convert.convert.cli.main import run
from candle_convert.tests.oracles.transformers import cases, made, transformers
from safetensors.torch import save_file

LLAMA = cases("LlamaForCausalLM", "llama", llama={})[0]
GPT2 = cases("GPT2LMHeadModel", "gpt2", gpt2={"n_positions": 64, "tie_word_embeddings": True})[0]
Q, EMBED, NORM = "model.layers.1.self_attn.q_proj", "model.embed_tokens", "model.norm.weight"


def adapter(folder, tensors, **config):
    folder.mkdir()
    save_file(
        {f"base_model.model.{name}": tensor.contiguous() for name, tensor in tensors.items()},
        folder / "adapter_model.safetensors",
    )
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 4, "lora_alpha": 8, **config}))
    return folder


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny")
    made(LLAMA, 0, folder)
    return folder


@pytest.fixture
def base(tiny, tmp_path):
    return Path(shutil.copytree(tiny, tmp_path / "base"))


def pair(outputs, inputs, rank=4):
    return torch.randn(outputs, rank), torch.randn(rank, inputs)


def merged(base, tmp_path, *adapters, **options):
    cc.convert(base, tmp_path / "out.safetensors", lora=tuple(map(str, adapters)), force=True, **options)
    return cc.load_file(tmp_path / "out.safetensors")


def close(found, wanted):
    np.testing.assert_allclose(found, np.asarray(wanted), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("config", "scale"),
    [
        ({}, 2.0),
        ({"lora_alpha": 6}, 1.5),
        ({"use_rslora": True}, 4.0),
        ({"alpha_pattern": {"q_proj": 32}}, 8.0),
        ({"r": 8, "rank_pattern": {r"layers\.1\.self_attn\.q_proj": 4}}, 2.0),
        ({"alpha_pattern": {"k_proj": 32, "^q_proj": 3}}, 2.0),
    ],
)
def test_updates_are_scaled(base, tmp_path, config, scale):
    up, down = pair(64, 64)
    tensors = {f"{Q}.lora_A.weight": down, f"{Q}.lora_B.weight": up}
    before = cc.load_file(base / "model.safetensors")
    found = merged(base, tmp_path, f"{adapter(tmp_path / 'lora', tensors, **config)}:0.5")
    close(found.pop(f"{Q}.weight"), before.pop(f"{Q}.weight") + 0.5 * scale * (up @ down).numpy())
    assert found.keys() == before.keys()
    assert all(np.array_equal(found[name], before[name]) for name in found)


def test_embeddings_saved_modules_biases_and_magnitudes(tmp_path):
    case = cases("LlamaForCausalLM", "llama", llama_bias={"attention_bias": True})[0]
    made(case, 0, tmp_path / "base")
    before = {
        name: torch.tensor(value) for name, value in cc.load_file(tmp_path / "base" / "model.safetensors").items()
    }
    up, down = pair(64, 64)
    wide_up, wide_down = pair(64, 96)
    norm, bias, length, of_bias = torch.randn(64), torch.randn(64), torch.rand(64) + 0.5, torch.randn(64)
    tensors = {
        f"{Q}.lora_A.weight": down,
        f"{Q}.lora_B.weight": up,
        f"{Q}.lora_magnitude_vector": length,
        f"{Q}.lora_B.bias": of_bias,
        "model.norm.modules_to_save.weight": norm,
        "model.layers.0.self_attn.k_proj.base_layer.bias": bias[:32],
    }
    embeddings = {f"{EMBED}.lora_embedding_A": wide_down, f"{EMBED}.lora_embedding_B": wide_up}
    found = merged(
        tmp_path / "base",
        tmp_path,
        adapter(tmp_path / "lora", tensors, use_dora=True, lora_bias=True),
        adapter(tmp_path / "embeddings", embeddings),
    )
    whole = before[f"{Q}.weight"] + 2 * up @ down
    close(found[f"{Q}.weight"], length[:, None] * whole / whole.norm(dim=1, keepdim=True))
    close(found[f"{Q}.bias"], before[f"{Q}.bias"] + 2 * of_bias)
    close(found[f"{EMBED}.weight"], before[f"{EMBED}.weight"] + 2 * (wide_up @ wide_down).T)
    close(found[NORM], norm)
    close(found["model.layers.0.self_attn.k_proj.bias"], bias[:32])


def test_layers_stored_the_other_way_and_convolutions(tmp_path):
    attention = "transformer.h.0.attn.c_attn"
    weights = {
        f"{attention}.weight": torch.randn(16, 48),
        "square.weight": torch.randn(16, 16),
        "conv.weight": torch.randn(8, 6, 3, 3),
    }
    save_file(weights, tmp_path / "base.safetensors")
    up, down = pair(48, 16)
    square_up, square_down = pair(16, 16)
    conv_up, conv_down = torch.randn(8, 4, 1, 1), torch.randn(4, 6, 3, 3)
    tensors = {
        f"{attention}.lora_A.weight": down,
        f"{attention}.lora_B.weight": up,
        "square.lora_A.default.weight": square_down,
        "square.lora_B.default.weight": square_up,
        "conv.lora_A.weight": conv_down,
        "conv.lora_B.weight": conv_up,
    }
    found = merged(tmp_path / "base.safetensors", tmp_path, adapter(tmp_path / "lora", tensors, fan_in_fan_out=True))
    close(found[f"{attention}.weight"], weights[f"{attention}.weight"] + 2 * (up @ down).T)
    close(found["square.weight"], weights["square.weight"] + 2 * (square_up @ square_down).T)
    close(
        found["conv.weight"],
        weights["conv.weight"] + 2 * (conv_up.reshape(8, 4) @ conv_down.reshape(4, -1)).reshape(8, 6, 3, 3),
    )


def test_dtypes_stay_and_rows_are_read_alone(base, tmp_path):
    cc.convert(base, tmp_path / "half", to="safetensors", dtype="bf16")
    up, down = pair(64, 64)
    folder = adapter(tmp_path / "lora", {f"{Q}.lora_A.weight": down.bfloat16(), f"{Q}.lora_B.weight": up.bfloat16()})
    cc.convert(tmp_path / "half", tmp_path / "out.safetensors", lora=(str(folder), f"{folder}:-1"))
    graph, before = cc.open(tmp_path / "out.safetensors"), cc.open(tmp_path / "half")
    assert graph[f"{Q}.weight"].dtype.name == "bf16"
    np.testing.assert_allclose(
        graph[f"{Q}.weight"].cast("f32").numpy(), before[f"{Q}.weight"].cast("f32").numpy(), atol=0.1
    )


@pytest.mark.parametrize(
    "rows",
    [
        ("other kind", {}, {"peft_type": "IA3"}, "E-LORA-KIND"),
        ("pissa", {}, {"init_lora_weights": "pissa_niter_4"}, "E-LORA-KIND"),
        ("replicated", {}, {"layer_replication": [[0, 2]]}, "E-LORA-KIND"),
        ("alpha", {}, {"lora_alpha": "8"}, "E-LORA-CONFIG"),
        ("pattern", {}, {"alpha_pattern": {"(": 3}}, "E-LORA-CONFIG"),
        ("pattern value", {}, {"alpha_pattern": {"q_proj": -3}}, "E-LORA-CONFIG"),
        ("catastrophic pattern", {}, {"rank_pattern": {"(([a-z._0-9]+)+)+!": 8}, "r": 5}, "E-LORA-SHAPE"),
        ("look-ahead in a pattern", {}, {"rank_pattern": {"(?!x)(x+x+)+y": 8}}, "E-LORA-CONFIG"),
        ("nested pattern", {}, {"alpha_pattern": {"(?!" * 3000 + "x" + ")" * 3000: 8}}, "E-LORA-CONFIG"),
        (
            "many steps",
            {},
            {"alpha_pattern": {f".{{0,999}}.{{0,999}}.{{0,999}}{number}": 8 for number in range(60)}},
            "E-LORA-CONFIG",
        ),
        ("rank", {}, {"r": 5}, "E-LORA-SHAPE"),
        ("one factor", {f"{Q}.lora_A.weight": None}, {}, "E-LORA-PAIR"),
        ("factors", {f"{Q}.lora_A.weight": torch.ones(3, 64)}, {}, "E-LORA-SHAPE"),
        ("inputs", {f"{Q}.lora_A.weight": torch.ones(4, 63)}, {}, "E-LORA-SHAPE"),
        (
            "rank 0",
            {f"{Q}.lora_A.weight": torch.ones(0, 64), f"{Q}.lora_B.weight": torch.ones(64, 0)},
            {},
            "E-LORA-SHAPE",
        ),
        ("magnitudes", {f"{Q}.lora_magnitude_vector": torch.ones(63)}, {}, "E-LORA-DORA"),
        (
            "names",
            {"model.layers.9.mlp.up_proj.lora_A.weight": torch.ones(4, 4), "score.weight": torch.ones(4)},
            {},
            "E-LORA-NAMES",
        ),
    ],
    ids=lambda row: row[0],
)
def test_adapters_that_do_not_fit(base, tmp_path, rows):
    _, changes, config, code = rows
    up, down = pair(64, 64)
    tensors = {f"{Q}.lora_A.weight": down, f"{Q}.lora_B.weight": up, **changes}
    folder = adapter(
        tmp_path / "lora", {name: tensor for name, tensor in tensors.items() if tensor is not None}, **config
    )
    with pytest.raises(cc.Error) as caught:
        merged(base, tmp_path, folder)
    assert caught.value.code == code
    assert not (tmp_path / "out.safetensors").exists()
    assert code != "E-LORA-NAMES" or ("score.weight" in caught.value.why and "layers.9" in caught.value.why)


def test_adapters_in_pickles(base, tmp_path):
    up, down = pair(64, 64)
    folder = adapter(tmp_path / "lora", {f"{Q}.lora_A.weight": down, f"{Q}.lora_B.weight": up})
    wanted = merged(base, tmp_path, folder)
    (folder / "adapter_model.safetensors").unlink()
    tensors = {f"base_model.model.{Q}.lora_{name}.weight": tensor for name, tensor in (("A", down), ("B", up))}
    torch.save(tensors, folder / "adapter_model.bin")
    assert all(np.array_equal(value, wanted[name]) for name, value in merged(base, tmp_path, folder).items())


def test_what_names_no_adapter(base, tmp_path):
    with pytest.raises(cc.FileAccessError, match="E-LORA-DIR"):
        merged(base, tmp_path, base)
    with pytest.raises(cc.UsageError, match="DIR"):
        merged(base, tmp_path, f"{base}:much")


@pytest.mark.parametrize(
    "config",
    [
        {"target_modules": ["q_proj", "v_proj", "embed_tokens"]},
        {"target_modules": "all-linear", "use_rslora": True, "r": 3},
        {"target_modules": ["q_proj", "down_proj"], "use_dora": True, "modules_to_save": ["lm_head"]},
        {
            "target_modules": ["o_proj", "up_proj"],
            "rank_pattern": {"o_proj": 2},
            "alpha_pattern": {"layers.0.mlp.up_proj": 5},
        },
    ],
    ids=["embeddings", "rslora", "dora", "patterns"],
)
def test_as_peft_merges(tmp_path, config):
    peft = pytest.importorskip("peft")
    model = made(LLAMA, 0, tmp_path / "base")
    torch.manual_seed(1)
    wrapped = peft.get_peft_model(model, peft.LoraConfig(lora_alpha=7, **config))
    with torch.no_grad():
        for name, parameter in wrapped.named_parameters():
            if "lora_" in name or "modules_to_save" in name:
                parameter.add_(0.1 * torch.randn_like(parameter))
    wrapped.save_pretrained(tmp_path / "lora")
    again = peft.PeftModel.from_pretrained(
        transformers().AutoModelForCausalLM.from_pretrained(tmp_path / "base"), tmp_path / "lora"
    )
    wanted = again.merge_and_unload().state_dict()
    for name, value in merged(tmp_path / "base", tmp_path, tmp_path / "lora").items():
        np.testing.assert_allclose(value, wanted[name].numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("stated", [False, True], ids=["untied", "tied by the adapter"])
@pytest.mark.parametrize(
    ("cls", "kind", "modules", "embedding"),
    [
        ("LlamaForCausalLM", "llama", {"target_modules": ["q_proj", "embed_tokens"]}, "model.embed_tokens.weight"),
        ("GemmaForCausalLM", "gemma", {"target_modules": ["q_proj", "embed_tokens"]}, "model.embed_tokens.weight"),
        ("GPT2LMHeadModel", "gpt2", {"target_modules": ["c_attn", "wte"]}, "transformer.wte.weight"),
        ("LlamaForCausalLM", "llama", {"modules_to_save": ["embed_tokens"]}, "model.embed_tokens.weight"),
    ],
    ids=["llama", "gemma", "gpt2", "saved"],
)
def test_a_tied_head_is_what_the_adapter_at_work_has(cls, kind, modules, embedding, stated, tmp_path):
    peft = pytest.importorskip("peft")
    config = {"tie_word_embeddings": True, **({"n_positions": 64} if kind == "gpt2" else {"head_dim": 16})}
    base = made(cases(cls, kind, tied=config)[0], 0, tmp_path / "base")
    others = {"target_modules": ["q_proj"]} if "target_modules" not in modules else {}
    settings = {"task_type": "CAUSAL_LM", "r": 4, "ensure_weight_tying": stated, **others, **modules}
    wrapped = peft.get_peft_model(base, peft.LoraConfig(fan_in_fan_out=kind == "gpt2", **settings)).eval()
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in wrapped.parameters():
            if parameter.requires_grad:
                parameter.add_(0.1 * torch.randn_like(parameter))
    ids = torch.randint(3, 96, (1, 12))
    with torch.no_grad():
        want = wrapped(input_ids=ids, use_cache=False).logits.numpy()
    wrapped.save_pretrained(tmp_path / "lora")
    report = cc.convert(tmp_path / "base", tmp_path / "out", to="safetensors", lora=(str(tmp_path / "lora"),))
    assert embedding in next(note.message for note in report.notes if note.code == "W-LORA-TIED")
    found = [cc.models.load(tmp_path / "out", threads=1).logits(ids.numpy())]
    with torch.no_grad():
        again = getattr(transformers(), cls).from_pretrained(tmp_path / "out").eval()
        found.append(again(input_ids=ids, use_cache=False).logits.numpy())
    for got in found:
        assert np.abs(got - want).max() <= 1e-4 * np.abs(want).max()


@pytest.mark.parametrize(("dtype", "alpha"), [("f32", 1e308), ("f32", 1e39), ("f16", 1e7)])
def test_an_update_past_the_range_is_refused(base, tmp_path, dtype, alpha):
    cc.convert(base, tmp_path / "typed", to="safetensors", dtype=dtype)
    up, down = pair(64, 64)
    folder = adapter(tmp_path / "lora", {f"{Q}.lora_A.weight": down, f"{Q}.lora_B.weight": up}, lora_alpha=alpha)
    with pytest.raises(cc.FormatError, match=r"E-LORA-RANGE.*lora_alpha"):
        cc.convert(tmp_path / "typed", tmp_path / "out.safetensors", lora=(str(folder),))
    assert not (tmp_path / "out.safetensors").exists()


@pytest.mark.parametrize(
    ("module", "factors", "size"),
    [(Q, ("lora_A.weight", "lora_B.weight"), 64), (EMBED, ("lora_embedding_A", "lora_embedding_B"), 96)],
)
def test_dora_without_magnitudes_is_refused(module, factors, size, base, tmp_path):
    up, down = pair(64, size)
    tensors = dict(zip((f"{module}.{name}" for name in factors), (down, up), strict=True))
    with pytest.raises(cc.FormatError, match=f"lacks {module}.lora_magnitude_vector"):
        merged(base, tmp_path, adapter(tmp_path / "lora", tensors, use_dora=True))


def test_dora_of_embeddings_is_refused_as_peft_saves_it(tmp_path):
    """PEFT's magnitudes of embeddings are of columns."""
    peft = pytest.importorskip("peft")
    model = made(LLAMA, 0, tmp_path / "base")
    settings = {"target_modules": ["q_proj", "embed_tokens"], "use_dora": True}
    peft.get_peft_model(model, peft.LoraConfig(**settings)).save_pretrained(tmp_path / "lora")
    with pytest.raises(cc.UnsupportedError, match="E-LORA-DORA"):
        merged(tmp_path / "base", tmp_path, tmp_path / "lora")


def test_as_peft_merges_into_layers_stored_the_other_way(tmp_path):
    peft = pytest.importorskip("peft")
    model = made(GPT2, 0, tmp_path / "base")
    wrapped = peft.get_peft_model(
        model, peft.LoraConfig(r=4, target_modules=["c_attn", "c_proj", "c_fc"], fan_in_fan_out=True)
    )
    with torch.no_grad():
        for name, parameter in wrapped.named_parameters():
            if "lora_" in name:
                parameter.add_(0.1 * torch.randn_like(parameter))
    wrapped.save_pretrained(tmp_path / "lora")
    wanted = wrapped.merge_and_unload().state_dict()
    found = merged(tmp_path / "base", tmp_path, tmp_path / "lora")
    for name, value in found.items():
        np.testing.assert_allclose(value, wanted[name].numpy(), rtol=1e-5, atol=1e-6)
    assert math.prod(found["transformer.h.0.attn.c_attn.weight"].shape) > 0


@pytest.mark.parametrize(
    ("case", "config"),
    [
        (GPT2, {"target_modules": ["c_proj"], "fan_in_fan_out": False}),
        (GPT2, {"target_modules": ["c_proj", "lm_head"], "fan_in_fan_out": True}),
        (LLAMA, {"target_modules": ["q_proj", "o_proj"], "fan_in_fan_out": True}),
    ],
    ids=["unsaid", "saved as false", "said of other layers"],
)
@pytest.mark.parametrize("stated", [False, True])
def test_layers_are_known_by_the_model_and_not_by_the_adapter(case, config, stated, tmp_path):
    """PEFT, too, corrects ``fan_in_fan_out`` by the kind of layer; square weights show nothing."""
    peft = pytest.importorskip("peft")
    wrapped = peft.get_peft_model(made(case, 0, tmp_path / "base"), peft.LoraConfig(r=4, **config)).eval()
    torch.manual_seed(1)
    with torch.no_grad():
        for name, parameter in wrapped.named_parameters():
            if "lora_" in name:
                parameter.add_(0.1 * torch.randn_like(parameter))
    ids = torch.randint(3, 96, (1, 12))
    with torch.no_grad():
        want = wrapped(input_ids=ids, use_cache=False).logits.numpy()
    wrapped.save_pretrained(tmp_path / "lora")
    file = tmp_path / "lora" / "adapter_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "fan_in_fan_out": stated}))
    cc.convert(tmp_path / "base", tmp_path / "out", to="safetensors", lora=(str(tmp_path / "lora"),))
    got = cc.models.load(tmp_path / "out", threads=1).logits(ids.numpy())
    assert np.abs(got - want).max() <= 1e-4 * np.abs(want).max()


def test_biases_of_saved_modules_are_those_at_work(tmp_path):
    """PEFT also saves the biases of the modules in whose place others are."""
    peft = pytest.importorskip("peft")
    case = cases("OPTForCausalLM", "opt", opt={"ffn_dim": 96, "word_embed_proj_dim": 64})[0]
    settings = {"r": 2, "target_modules": ["fc1"], "modules_to_save": ["final_layer_norm"], "bias": "all"}
    wrapped = peft.get_peft_model(made(case, 0, tmp_path / "base"), peft.LoraConfig(**settings))
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in wrapped.parameters():
            if parameter.requires_grad:
                parameter.add_(0.1 * torch.randn_like(parameter))
    wrapped.save_pretrained(tmp_path / "lora")
    found = merged(tmp_path / "base", tmp_path, tmp_path / "lora")
    wanted = wrapped.merge_and_unload().state_dict()
    for name, value in found.items():
        np.testing.assert_allclose(value, wanted[name].numpy(), rtol=1e-5, atol=1e-6)


def test_quantizing_merges_first(base, tmp_path):
    up, down = pair(64, 64)
    folder = adapter(tmp_path / "lora", {f"{Q}.lora_A.weight": down, f"{Q}.lora_B.weight": up})
    cc.convert(base, tmp_path / "merged", to="safetensors", lora=(str(folder),))
    assert run(["quantize", str(tmp_path / "merged"), str(tmp_path / "two.gguf"), "Q8_0", "-q"]) == 0
    (tmp_path / "merged").rename(tmp_path / "was")
    base.rename(tmp_path / "merged")
    for number, (command, *type_name) in enumerate((("quantize", "Q8_0"), ("convert", "--quantize", "Q8_0"))):
        output = tmp_path / f"{number}.gguf"
        assert run([command, str(tmp_path / "merged"), str(output), *type_name, "--lora", str(folder), "-q"]) == 0
        assert output.read_bytes() == (tmp_path / "two.gguf").read_bytes()
    plan = cc.plan(tmp_path / "merged", cc.Recipe("Q8_0"), lora=(str(folder),))
    plan.execute(tmp_path / "three.gguf")
    assert (tmp_path / "three.gguf").read_bytes() == (tmp_path / "two.gguf").read_bytes()


def test_networks_have_no_adapters(base, tmp_path, capsys):
    cc.convert(base, tmp_path / "m.onnx")
    folder = adapter(
        tmp_path / "lora", {f"{Q}.lora_A.weight": torch.ones(4, 64), f"{Q}.lora_B.weight": torch.ones(64, 4)}
    )
    for command, *type_name in (("convert",), ("quantize", "int8")):
        assert (
            run(
                [
                    command,
                    str(tmp_path / "m.onnx"),
                    str(tmp_path / "n.onnx"),
                    *type_name,
                    "--lora",
                    str(folder),
                    "--json",
                ]
            )
            == 2
        )
        assert json.loads(capsys.readouterr().out)["error"]["code"] == "E-OPTION-NODES"


@pytest.mark.parametrize(
    "config",
    [
        {"target_modules": ["q_proj"]},
        {"target_modules": r".*\.self_attn\.(?:q|x)_proj"},
        {"target_modules": ["q_proj", "v_proj"], "exclude_modules": r".*layers\.1\..*"},
        {"target_modules": ["q_proj", "v_proj"], "exclude_modules": ["self_attn.v_proj"]},
        {"target_modules": ["q_proj", "v_proj"], "layers_to_transform": [0, 2]},
        {"target_modules": ["q_proj", "v_proj"], "layers_to_transform": 1, "layers_pattern": ["h", "layers"]},
        {"target_modules": ["model.layers.0.self_attn.v_proj"], "layers_to_transform": [1]},
    ],
    ids=str,
)
def test_modules_that_the_configuration_does_not_name_are_left_out(config, tmp_path):
    peft = pytest.importorskip("peft")
    model = made(LLAMA, 0, tmp_path / "base")
    settings = {"r": 4, "init_lora_weights": False, "target_modules": ["q_proj", "v_proj"]}
    peft.get_peft_model(model, peft.LoraConfig(**settings)).save_pretrained(tmp_path / "lora")
    path = tmp_path / "lora/adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **config}))
    base = transformers().LlamaForCausalLM.from_pretrained(tmp_path / "base", dtype=torch.float32)
    before = {name: tensor.clone().numpy() for name, tensor in base.state_dict().items()}
    theirs = peft.PeftModel.from_pretrained(base, tmp_path / "lora").merge_and_unload().state_dict()
    report = cc.convert(tmp_path / "base", tmp_path / "out.safetensors", lora=(str(tmp_path / "lora"),))
    found = cc.load_file(tmp_path / "out.safetensors")
    for name in found:
        close(found[name], theirs[name].numpy())
    kept = sum(not np.array_equal(found[name], before[name]) for name in found)
    assert 0 < kept < 6
    note = next(note.message for note in report.notes if note.code == "W-LORA-TARGET")
    assert f"{6 - kept} update" in note
    assert "target_modules" in note


def test_modules_by_a_pattern_with_look_around_are_all_merged(base, tmp_path):
    up, down = pair(64, 64)
    tensors = {f"{Q}.lora_A.weight": down, f"{Q}.lora_B.weight": up}
    folder = adapter(tmp_path / "lora", tensors, target_modules="(?!.*vision).*q_proj")
    before = cc.load_file(base / "model.safetensors")[f"{Q}.weight"]
    report = cc.convert(base, tmp_path / "out.safetensors", lora=(str(folder),))
    close(cc.load_file(tmp_path / "out.safetensors")[f"{Q}.weight"], before + 2 * (up @ down).numpy())
    assert "W-LORA-TARGET" in {note.code for note in report.notes}

"""Models whose names follow two conventions are compared by their architecture; damaged weights are found by both
names."""

import gc
import json
import weakref

import candle_convert as cc
import numpy as np
import pytest
from candle_convert.convert.cli.main import run
from candle_convert.convert.compare.certificate import verify
from candle_convert.convert.compare.diff import diff
from candle_convert.convert.compare.match_tensors import NamesError, counterparts
from candle_convert.convert.open.open_model import open_model
from candle_convert.tests.builders.decoder_cases import DECODERS, WITHOUT_GGUF
from candle_convert.tests.builders.legacy_llama import FILES, transformers_llama
from candle_convert.tests.builders.recurrent_cases import RECURRENT
from candle_convert.tests.builders.sampling import full
from candle_convert.tests.oracles.transformers import cases, made

EVERY = {case.name: case for case in (*DECODERS, *WITHOUT_GGUF, *RECURRENT)}
SAMPLED = (
    "llama", "llama_3", "gemma", "gpt2", "mixtral", "falcon_40b", "phi3_longrope", "starcoder", "deepseek_v3",
    "gpt_oss", "mamba2", "lfm2", "granitemoe", "apertus", "exaone4", "gemma4", "qwen3",
)  # fmt: skip
"""One of each kind of layout: rotary pairs, computed factors, 1 + weight, transposed, experts apart and stacked, fused,
latent, exponentials."""
FULL = full()
COMPUTED = ("rope", "xielu", "act_fn")
"""In names of weights that some files state as settings."""


@pytest.fixture(scope="module")
def sides(tmp_path_factory):
    """By case: the checkpoint, the GGUF file and graph made of it, and the checkpoint made of the GGUF file."""
    known = {}

    def of(name):
        if name not in known:
            folder = tmp_path_factory.mktemp(name)
            made(EVERY[name], 0, folder / "hf")
            cc.convert(folder / "hf", folder / "onnx", to="onnx")
            try:
                cc.convert(folder / "hf", folder / "model.gguf")
                cc.convert(folder / "model.gguf", folder / "back", to="safetensors")
            except cc.UnsupportedError:
                pass
            known[name] = [folder / kind for kind in ("hf", "model.gguf", "onnx", "back") if (folder / kind).exists()]
        return known[name]

    return of


@pytest.fixture(params=[name for name in EVERY if FULL or name in SAMPLED])
def models(request, sides):
    return sides(request.param)


def test_every_architecture_in_every_pair_of_conventions(models):
    for a in models:
        for b in models:
            if a != b:
                found, changes = verify(a, b), diff(a, b, metadata={a.name, b.name} != {"hf", "back"})
                assert found.ok, (a.name, b.name, found.table(found.failed))
                assert not changes.metadata, changes.metadata
                assert changes.same or max(row.max_abs for row in changes.differing) < 1e-7, changes.table()
                assert (found.architecture is None) == ({a.name, b.name} == {"hf", "back"})
                for row in found.tensors:
                    computed = any(word in row.name for word in COMPUTED)
                    assert (row.names_source and row.names_made) or computed, row.name
    assert len({cc.hash(path, canonical=True) for path in models}) == 1


def damage(path, name, change):
    """Change values of a tensor in its file."""
    tensor = open_model(path).weights[name]
    values = tensor.numpy().copy()
    change(values)
    with open(tensor.storage.source.path, "r+b") as file:
        file.seek(tensor.storage.offset)
        file.write(values.tobytes())


@pytest.fixture
def copies(sides, tmp_path):
    """A checkpoint and a GGUF file that may be changed."""
    import shutil

    def of(name):
        hf, gguf = sides(name)[:2]
        shutil.copytree(hf, tmp_path / "hf")
        shutil.copy(gguf, tmp_path / "model.gguf")
        return tmp_path / "hf", tmp_path / "model.gguf"

    return of


def one(values):
    values.reshape(-1)[-1] += 0.01


def rows(values):
    values[[0, 1]] = values[[1, 0]]


def in_halves(values):
    """Rows of two heads of keys, from pairs back to halves, as Hugging Face's files have them."""
    values[:] = values.reshape(2, 8, 2, -1).swapaxes(1, 2).reshape(values.shape)


def less_one(values):
    values -= 1


NORM, HF_NORM = "blk.2.ffn_norm.weight", "model.layers.2.post_attention_layernorm.weight"
FUSED, HF_FUSED = "blk.1.attn_qkv.weight", "transformer.h.1.self_attention.query_key_value.weight"
KEYS, HF_KEYS = "blk.1.attn_k.weight", "model.layers.1.self_attn.k_proj.weight"
DAMAGES = {
    "one element": ("llama", KEYS, one, HF_KEYS),
    "one row": ("llama", KEYS, rows, HF_KEYS),
    "keys as Hugging Face has them": ("llama", KEYS, in_halves, HF_KEYS),
    "a norm of Gemma without its 1": ("gemma", NORM, less_one, HF_NORM),
    "one element of a transposed matrix": ("gpt2", "blk.0.ffn_up.weight", one, "transformer.h.0.mlp.c_fc.weight"),
    "factors of frequencies": ("llama_3", "rope_freqs.weight", one, None),
    "a fused matrix": ("falcon_40b", FUSED, rows, HF_FUSED),
}  # fmt: skip


@pytest.mark.parametrize("what", DAMAGES)
def test_damage_is_found_by_both_names(what, copies, capsys):
    case, name, change, hf_name = DAMAGES[what]
    hf, gguf = copies(case)
    damage(gguf, name, change)
    for a, b in ((hf, gguf), (gguf, hf)):
        (failed,) = verify(a, b).failed
        assert failed.status in ("changed", "beyond")
        assert {*failed.names_source, *failed.names_made} == {each for each in (name, hf_name) if each}
        (row,) = diff(a, b).differing
        assert {*row.names_a, *row.names_b} == {*failed.names_source, *failed.names_made}
        assert run(["verify", str(a), str(b)]) == run(["diff", str(a), str(b)]) == 1
        shown = capsys.readouterr().out
        assert name in shown
        assert hf_name is None or hf_name in shown
    assert cc.hash(hf, canonical=True) != cc.hash(gguf, canonical=True)


def test_one_expert_of_many(copies):
    hf, gguf = copies("mixtral")
    name = next(name for name in cc.open(hf).weights if "experts" in name)
    damage(hf, name, one)
    (failed,) = verify(hf, gguf).failed
    assert name in failed.names_source
    assert "_exps" in failed.name
    (failed,) = verify(gguf, hf).failed
    assert failed.names_made == (name,)


def test_tied_heads(tmp_path):
    (case,) = cases("Qwen2ForCausalLM", "qwen2", tied={"tie_word_embeddings": True})
    made(case, 0, tmp_path / "hf")
    cc.convert(tmp_path / "hf", tmp_path / "tied.gguf")
    graph = cc.open(tmp_path / "tied.gguf")
    assert "output.weight" not in graph.weights
    embedding = graph.weights["token_embd.weight"]
    for change, failed in ((0, []), (1, ["output.weight"])):
        weights = {**graph.weights, "output.weight": embedding.numpy() + np.float32(change)}
        cc.save_file(weights, tmp_path / "apart.gguf", metadata=graph.metadata)
        assert [row.name for row in verify(tmp_path / "hf", tmp_path / "apart.gguf").failed] == failed
        assert len(verify(tmp_path / "apart.gguf", tmp_path / "hf").failed) == len(failed)
        same = cc.hash(tmp_path / "hf", canonical=True) == cc.hash(tmp_path / "apart.gguf", canonical=True)
        assert same is not bool(change)


def test_what_is_missing_and_what_is_extra(copies, tmp_path):
    hf, gguf = copies("llama")
    graph = cc.open(gguf)
    weights = {name: tensor for name, tensor in graph.weights.items() if name != KEYS} | {
        "strange": np.ones(3, np.float32)
    }
    cc.save_file(weights, tmp_path / "other.gguf", metadata=graph.metadata)
    assert [(row.name, row.status) for row in verify(hf, tmp_path / "other.gguf").failed] == [
        (HF_KEYS, "missing"),
        ("strange", "extra"),
    ]
    assert [(row.name, row.status) for row in verify(tmp_path / "other.gguf", hf).failed] == [
        (HF_KEYS, "extra"),
        ("strange", "missing"),
    ]
    assert {row.status for row in diff(hf, tmp_path / "other.gguf").differing} == {"only-a", "only-b"}


@pytest.mark.parametrize("kind", ["q4_0", "q8_0", "f16", "bf16"])
def test_types_have_their_bounds(kind, copies, tmp_path):
    hf, gguf = copies("llama")
    small = tmp_path / "small.gguf"
    arguments = (
        ["quantize", str(gguf), str(small), kind]
        if kind.startswith("q")
        else ["convert", str(gguf), str(small), "--dtype", kind]
    )
    assert run([*arguments, "-q"]) == 0
    found = verify(hf, small)
    assert found.ok
    assert {row.status for row in found.tensors} <= {"equal", "within"}
    cc.convert(small, tmp_path / "wide", to="safetensors", dtype="f32")
    assert verify(small, tmp_path / "wide").ok
    assert cc.hash(small, canonical=True) == cc.hash(tmp_path / "wide", canonical=True) != cc.hash(hf, canonical=True)
    assert verify(tmp_path / "wide", small).ok
    assert diff(hf, small, atol=1.0).same


def test_shards(copies, tmp_path):
    hf, gguf = copies("gemma")
    assert run(["convert", str(hf), str(tmp_path / "shards"), "-t", "safetensors", "--shard-size", "50KB", "-q"]) == 0
    assert run(["convert", str(gguf), str(tmp_path / "cut.gguf"), "--shard-size", "50KB", "-q"]) == 0
    first = min(tmp_path.glob("cut-00001-of-*.gguf"))
    assert verify(tmp_path / "shards", first).ok
    assert verify(first, tmp_path / "shards").ok


def test_hyper_parameters_are_compared(copies):
    hf, gguf = copies("llama")
    config = json.loads((hf / "config.json").read_text())
    (hf / "config.json").write_text(json.dumps(config | {"rope_theta": 12345.0}))
    (change,) = diff(hf, gguf).metadata
    assert (change.name, change.a) == ("theta", 12345.0)


@pytest.mark.parametrize("kind", FILES)
def test_files_from_before_gguf(kind, tmp_path):
    _, weights = transformers_llama()
    (tmp_path / "model.bin").write_bytes(FILES[kind](weights))
    cc.convert(tmp_path / "model.bin", tmp_path / "model.gguf")
    cc.convert(tmp_path / "model.gguf", tmp_path / "hf", to="safetensors")
    found = verify(tmp_path / "model.bin", tmp_path / "hf")
    assert found.ok
    keys = next(row for row in found.tensors if row.name == "model.layers.0.self_attn.k_proj.weight")
    assert keys.names_source == ("layers.0.attention.wk.weight",)
    assert verify(tmp_path / "hf", tmp_path / "model.bin").ok
    assert verify(tmp_path / "model.bin", tmp_path / "model.gguf").ok


@pytest.fixture
def strangers(copies, tmp_path):
    """Weights of which nothing says the architecture, and a GGUF file of the same."""
    hf, gguf = copies("llama")
    (tmp_path / "bare").mkdir()
    (hf / "model.safetensors").rename(tmp_path / "bare" / "model.safetensors")
    return tmp_path / "bare" / "model.safetensors", gguf


@pytest.mark.parametrize("command", ["verify", "diff"])
@pytest.mark.parametrize("swapped", [False, True])
def test_names_of_two_conventions_are_told_in_one_line(command, swapped, strangers, capsys):
    a, b = strangers[::-1] if swapped else strangers
    assert run([command, str(a), str(b)]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    (line,) = said.err.splitlines()
    assert "two conventions" in line
    assert "config.json" in line
    assert "--rename" in line
    assert run([command, str(a), str(b), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "E-NAMES"


def test_models_of_two_architectures(sides, copies):
    hf, _ = copies("llama")
    with pytest.raises(NamesError, match=r"one is a Llama.*the other a GPT-2"):
        verify(hf, sides("gpt2")[1])


def test_names_that_were_mapped_by_hand_go_before_the_architecture(strangers):
    a, b = strangers
    found = diff(a, b, rename=[(r"model\.norm\.weight", "output_norm.weight")], metadata=False)
    assert [row.name for row in found if row.status == "equal"] == ["output_norm.weight"]
    with pytest.raises(NamesError, match="--rename"):
        diff(a, b, rename=[("x", "y")])


def test_hashes_of_several_files(strangers, sides, capsys):
    hf, gguf = sides("llama")[:2]
    assert run(["hash", str(hf), str(gguf), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["canonical"] is True
    assert len({model["content_hash"] for model in answer["hashes"]}) == 1
    assert answer["hashes"][0]["content_hash"] == cc.hash(gguf, canonical=True) != cc.hash(gguf)
    assert run(["hash", str(hf), str(sides("llama")[3])]) == 0
    assert capsys.readouterr().out.startswith(cc.hash(hf))
    assert run(["hash", *map(str, strangers)]) == 0
    said = capsys.readouterr()
    assert "two conventions" in said.err
    assert said.out.split()[0] == cc.hash(strangers[0])


def test_a_manifest_by_the_architecture(sides, tmp_path):
    hf, gguf = sides("llama")[:2]
    assert run(["hash", str(hf), "--canonical", "--write", str(tmp_path / "sums")]) == 0
    assert run(["hash", str(gguf), "--canonical", "--check", str(tmp_path / "sums")]) == 0
    assert run(["hash", str(gguf), "--check", str(tmp_path / "sums")]) == 1


def test_scalars_and_empty_tensors_on_one_side():
    from candle_convert.runtime.ir.graph import Graph
    from candle_convert.runtime.tensor.stored_tensor import StoredTensor

    both = {"a": StoredTensor.of(np.ones(2, np.float32))}
    other = both | {"b": StoredTensor.of(np.float32(1)), "c": StoredTensor.of(np.zeros((0, 3), np.float32))}
    statuses = [row.status for row in verify(Graph(weights=other), Graph(weights=both)).tensors]
    assert statuses == ["equal", "missing", "missing"]


def test_models_are_freed(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.ones((2, 3), np.float32))
    one, other = open_model(tmp_path / "a.npz"), open_model(tmp_path / "a.npz")
    found = counterparts(one, other, one.weights, other.weights)
    assert [pair.canonical() for pair in found.pairs] == [None]
    storages = [weakref.ref(graph.weights["x"].storage) for graph in (one, other)]
    del one, other, found
    gc.collect()
    assert [storage() for storage in storages] == [None, None]

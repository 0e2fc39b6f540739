"""Layers of a language model on two worker processes: the tokens, figures and importances of one process."""

import json
import os
import signal

import candle_convert as cc
import numpy as np
import pytest
from candle_convert.convert.cli.main import run
from candle_convert.convert.cluster.parallel.layer_stages import LayerStage, pipelined_model
from candle_convert.convert.cluster.workers.opening import Opening
from candle_convert.runtime.contract.format import ReadOptions
from candle_convert.tests.builders import tiny_llama


@pytest.fixture(scope="module")
def cluster():
    with cc.cluster("local:2") as workers:
        workers.client.wait_for_workers(2)
        yield workers


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    tiny_llama.written(folder / "llama.gguf")
    cc.quantize(folder / "llama.gguf", folder / "small.gguf", "Q8_0")
    return folder


@pytest.mark.parametrize("name", ["llama.gguf", "small.gguf"])
def test_tokens(model, cluster, name):
    """Greedy tokens, a cache that is copied and goes on twice, and logits."""
    whole = cc.models.load(model / name)
    staged = pipelined_model(cluster, Opening(str(model / name), ReadOptions()), 2, None)
    ids = list(range(70, 100))
    assert staged.greedy(ids, 24) == whole.greedy(ids, 24)
    (_, ours), (_, theirs) = staged.step(ids), whole.step(ids)
    for _ in range(2):
        np.testing.assert_allclose(staged.step([80], ours)[0], whole.step([80], theirs)[0], rtol=0, atol=1e-5)


@pytest.mark.parametrize("kv_type", ["f32", "f16", "q8_0"])
def test_kv_types(cluster, tmp_path, kv_type):
    """Each stage stores keys and values in the type that is asked for, with the tokens of one process."""
    heads = {f"llama.attention.{key}": np.uint32(2) for key in ("head_count", "head_count_kv")}
    path = tiny_llama.written(tmp_path / "wide.gguf", **heads)
    whole = cc.models.load(path)
    staged = pipelined_model(cluster, Opening(str(path), ReadOptions()), 2, None)
    for each in (whole, staged):
        each.store_cache_as(kv_type)
    ids = list(range(70, 100))
    assert staged.greedy(ids, 24) == whole.greedy(ids, 24)
    with pytest.raises(cc.UsageError, match=r"E-LM-KV-TYPE.*unknown type"):
        staged.store_cache_as("q3_0")


def test_weights_stay_with_their_layers(model, cluster):
    """Each worker reads the weights of its layers alone."""
    staged = pipelined_model(cluster, Opening(str(model / "llama.gguf"), ReadOptions()), 2, None)
    names = [set(plan.extracted(staged.graph).weights) for plan in staged._plans]
    assert not any(".1." in name for name in names[0] if name.startswith("layers."))
    assert not any(".0." in name for name in names[1] if name.startswith("layers."))
    assert LayerStage.__doc__


def test_generate(model, cluster, capsys):
    """A prompt, with sampling, and prompts of a file."""
    address = cluster.client.scheduler.address
    words = ["generate", str(model / "small.gguf"), "-p", "A cat", "-n", "16", "--seed", "3"]
    assert run(words) == 0
    alone = capsys.readouterr().out
    assert run([*words, "--cluster", address]) == 0
    assert capsys.readouterr().out == alone
    (model / "rows.jsonl").write_text("\n".join(json.dumps({"prompt": f"Say {n}", "max_tokens": 5}) for n in range(3)))
    words = ["generate", str(model / "small.gguf"), "-f", str(model / "rows.jsonl"), "--seed", "3"]
    assert run(words) == 0
    alone = capsys.readouterr().out
    assert run([*words, "--cluster", address, "--pipeline-parallel", "2"]) == 0
    assert capsys.readouterr().out == alone
    assert run([*words, "--pipeline-parallel", "2"]) == 2
    assert "--pipeline-parallel needs workers" in capsys.readouterr().err
    assert run([*words, "--cluster", address, "--pipeline-parallel", "3"]) != 0
    assert "2 layers" in capsys.readouterr().err


def test_ranks(model, cluster, capsys):
    """Tensor-parallel ranks on workers: the tokens of ranks on this machine."""
    words = ["generate", str(model / "llama.gguf"), "-p", "A cat", "-n", "16", "--seed", "3", "--tensor-parallel", "2"]
    assert run(words) == 0
    alone = capsys.readouterr().out
    assert run([*words, "--cluster", cluster.client.scheduler.address]) == 0
    assert capsys.readouterr().out == alone


def test_text(model, cluster, tmp_path, capsys):
    """Perplexity, and an importance matrix."""
    staged = ["--cluster", cluster.client.scheduler.address, "--pipeline-parallel", "2"]
    text = tmp_path / "text.txt"
    text.write_text("A cat sat on the mat, and a dog ran by. " * 20)
    more = ["-d", str(text), "--context", "64", "--chunks", "3"]
    words = ["eval", str(model / "small.gguf"), *more, "--metric", "ppl"]
    assert run(words) == 0
    alone = capsys.readouterr().out
    assert run([*words, *staged]) == 0
    assert capsys.readouterr().out == alone
    for name, where in (("alone", []), ("shared", staged)):
        assert run(["imatrix", str(model / "llama.gguf"), *more, "-o", str(tmp_path / f"{name}.gguf"), *where]) == 0
    alone, shared = (cc.load_file(tmp_path / f"{name}.gguf") for name in ("alone", "shared"))
    assert alone.keys() == shared.keys()
    for name, array in alone.items():
        np.testing.assert_allclose(shared[name], array, rtol=1e-5)


@pytest.mark.parametrize("noticed", [True, False])
def test_killed_worker(model, monkeypatch, noticed):
    """A worker that is killed between tokens: one line, no hang, also before the scheduler has noticed."""
    with cc.cluster("local:2") as workers:
        staged = pipelined_model(workers, Opening(str(model / "llama.gguf"), ReadOptions()), 2, None)
        assert len(staged.greedy([70, 71], 2)) == 2
        process = workers.client.run(os.getpid)[staged._stages[1]._address]
        if not noticed:
            listed = workers.addresses
            monkeypatch.setattr(type(workers), "addresses", property(lambda cluster: listed))
        os.kill(process, signal.SIGKILL)
        with pytest.raises(cc.FileAccessError, match=r"E-CLUSTER-LOST.*has ended"):
            staged.greedy([70, 71], 200)

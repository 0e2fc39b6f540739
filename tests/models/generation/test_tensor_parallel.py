"""Ranks: every decoder family on two of them gives what it gives on one, and a model on two processes generates the
same text."""

import json
import multiprocessing
import threading

import candle_convert as cc
import numpy as np
import pytest
from candle_convert.convert.cli.main import run
from candle_convert.convert.load.bind import bind_model, build_graph
from candle_convert.convert.open.open_model import open_model
from candle_convert.models.generation.language_model import LanguageModel
from candle_convert.models.generation.parallel import tensor_parallel
from candle_convert.runtime.base.errors import Error, FileAccessError, UnsupportedError, UsageError
from candle_convert.runtime.ir.builder import Builder
from candle_convert.runtime.ir.graph import Graph, Value
from candle_convert.runtime.ir.shape_inference import infer
from candle_convert.runtime.passes.parallel.tensor_parallel import ShardAcrossRanks
from candle_convert.runtime.passes.parallel.vocabulary_parallel import vocabulary
from candle_convert.runtime.passes.parallel.weight_slice import slice_weight as cut_tensor
from candle_convert.runtime.ranks.communicator import Alone, Loopback, _send, communicator, join, leave
from candle_convert.runtime.tensor.dtype import DTYPES, F32, I64
from candle_convert.runtime.tensor.storage import Held
from candle_convert.runtime.tensor.stored_tensor import StoredTensor
from candle_convert.tests.builders import tiny_llama
from candle_convert.tests.builders.decoder_cases import DECODERS, WITHOUT_GGUF
from candle_convert.tests.builders.sampling import full
from candle_convert.tests.oracles.transformers import made

FULL = full()
WHOLE = {
    "olmo2": "a norm over all heads or units",
    "olmo3": "a norm over all heads or units",
    "deepseek_v2_lite": "this Split of a shard is not supported",
    "falcon": "1 head or units are not a multiple of 2 ranks",
    "gpt_oss": "AttentionWithSinks of a shard of heads or units is not supported",
    "clamped": "AttentionWithSinks of a shard of heads or units is not supported",
}
"""Families whose attention stays whole on every rank, and why."""
SAMPLED = ("llama_bias", "gemma2", "mixtral", "phi3", "olmo2", "gpt2")


def loopbacks(size):
    """Communicators of ranks that are threads."""
    ends = [multiprocessing.Pipe() for _ in range(size - 1)]
    return [
        Loopback(0, [ours for ours, _ in ends], size),
        *(Loopback(rank + 1, [theirs], size) for rank, (_, theirs) in enumerate(ends)),
    ]


def on_ranks(size, work):
    """What rank 0 gets; `work` is called with the rank and its group's name."""
    results, errors, groups, ranks = {}, [], [f"test {rank}" for rank in range(size)], loopbacks(size)
    for group, one in zip(groups, ranks, strict=True):
        join(group, one)

    def go(rank):
        try:
            results[rank] = work(rank, groups[rank])
        except Exception as error:
            errors.append(error)
            for pipe in ranks[rank]._pipes:  # so that no other rank waits for this one
                pipe.close()

    threads = [threading.Thread(target=go, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for group in groups:
        leave(group)
    if errors:
        raise errors[0]
    return [results[rank] for rank in range(size)]


def cut(path, rank, size, group):
    graph = build_graph(bind_model(open_model(path)))
    across = ShardAcrossRanks(rank, size, group)
    across.run(graph)
    return graph, across.whole


@pytest.mark.parametrize(
    "case", [case for case in (*DECODERS, *WITHOUT_GGUF) if FULL or case.name in SAMPLED], ids=lambda case: case.name
)
def test_two_ranks_are_one(case, tmp_path):
    made(case, 0, tmp_path)
    ids = np.random.default_rng(0).integers(5, 60, (2, 11))
    whole = cc.models.load(tmp_path, threads=1)
    expected = whole.logits(ids)

    def work(rank, group):
        graph, stays = cut(tmp_path, rank, 2, group)
        model = LanguageModel(graph, threads=1)
        first, cache = model.step(ids[:, :6])
        rest, _ = model.step(ids[:, 6:], cache)
        return np.concatenate([first, rest], 1), stays, graph

    (got, stays, graph), (other, _, _) = on_ranks(2, work)
    assert np.array_equal(got, other), "all ranks add up in one order"
    rows = {
        name: whole.graph.weights[name].shape[0]
        for name in ("embed.weight", "head.weight")
        if name in whole.graph.weights
    }
    assert {name: graph.weights[name].shape[0] for name in rows} == {
        name: -(-count // 2) for name, count in rows.items()
    }
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())
    assert graph.nbytes < whole.graph.nbytes
    known = WHOLE.get(case.name)
    assert set(stays.values()) == (set() if known is None else {known})


def files(folder, **changes):
    tiny_llama.written(folder / "m.gguf", **{"llama.attention.head_count_kv": np.uint32(tiny_llama.HEADS), **changes})
    return folder / "m.gguf"


@pytest.mark.parametrize(("size", "kind"), [(2, None), (4, None), (4, "f16"), (2, "q8_0")])
@pytest.mark.parametrize("tied", [False, True])
def test_rows_of_the_vocabulary_are_shared(size, kind, tied, tmp_path):
    """The last of four ranks has two rows fewer; of tied weights each has its rows once."""
    path = files(tmp_path)
    if tied:
        model = cc.open(path)
        cc.save_file({name: model[name] for name in model if name != "output.weight"}, path, metadata=model.metadata)
    if kind is not None:
        assert (
            run(
                [
                    "quantize",
                    str(path),
                    str(tmp_path / "k.gguf"),
                    kind,
                    *(["--pure"] if kind != "f16" else []),
                    "--quiet",
                ]
            )
            == 0
        )
        path = tmp_path / "k.gguf"
    ids = [[3, 100, 200, 300, tiny_llama.COUNT - 1]]
    whole = cc.models.load(path, threads=1)
    expected = whole.logits(ids)

    def work(rank, group):
        graph, _ = cut(path, rank, size, group)
        model = LanguageModel(graph, threads=1)
        with pytest.raises(Error, match="outside of the axis"):
            model.logits([[tiny_llama.COUNT]])
        return model.logits(ids), graph, model.vocabulary

    results = on_ranks(size, work)
    each = -(-tiny_llama.COUNT // size)
    shares = [min(each, tiny_llama.COUNT - rank * each) for rank in range(size)]
    for name in ("embed.weight", "head.weight")[: 1 if tied else 2]:
        assert [graph.weights[name].shape[0] for _, graph, _ in results] == shares
    assert "head.weight" not in results[0][1].weights or not tied
    for got, _, count in results:
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())
        assert count == tiny_llama.COUNT == got.shape[-1]


def test_a_vocabulary_that_is_too_small_stays_whole():
    graph = Graph()
    graph.weights = {"embed.weight": StoredTensor.of(np.ones((5, 4), np.float32))}
    graph.values = {"embed.weight": Value("embed.weight", F32, (5, 4)), "input_ids": Value("input_ids", I64, (1, 3))}
    graph.inputs = [graph.values["input_ids"]]
    graph.outputs = [Builder(graph).add("Gather", [graph.values["embed.weight"], graph.values["input_ids"]])]
    infer(graph)
    assert vocabulary(graph, 0, 2).weights.keys() == {"embed.weight"}
    assert vocabulary(graph, 0, 4).whole == {"embed.weight": "5 rows are too few for 4 ranks"}
    Builder(graph).add("Neg", [graph.values["embed.weight"]])
    assert vocabulary(graph, 0, 2).whole == {"embed.weight": "it is more than an embedding and a head"}


def test_processes_generate_what_one_does(tmp_path, capsys):
    path = files(tmp_path)
    said = []
    for options in ([], ["--tensor-parallel", "2"]):
        assert (
            run(
                [
                    "generate",
                    str(path),
                    "-p",
                    "once",
                    "-n",
                    "8",
                    "--temp",
                    "0",
                    "--activations",
                    "f32",
                    "--threads",
                    "1",
                    *options,
                    "--json",
                ]
            )
            == 0
        )
        said.append(json.loads(capsys.readouterr().out)["tokens"])
    assert said[0] == said[1]


def test_caches_are_those_of_all_ranks(tmp_path):
    path = files(tmp_path)
    one, two = cc.models.load(path, threads=1), cc.models.load(path, threads=1, tensor_parallel=2)
    first, cache = two.step([3, 4, 5])
    left, right = two.step([6], cache)[0], two.step([7], cache)[0]
    whole = one.logits([[3, 4, 5, 6], [3, 4, 5, 7]])
    np.testing.assert_allclose(
        np.stack([left[0, 0], right[0, 0]]), whole[:, -1], rtol=1e-4, atol=1e-4 * np.abs(whole).max()
    )
    np.testing.assert_allclose(first[0], whole[0, :3], rtol=1e-4, atol=1e-4 * np.abs(whole).max())
    two._others[0].close()
    two._others.clear()


@pytest.mark.parametrize(
    ("name", "stays"), [("q8_0", {"layers.0.mlp", "layers.1.mlp"}), ("q4_0", {"layers.0.mlp", "layers.1.mlp"})]
)
def test_blocks_are_cut_between(name, stays, tmp_path):
    """Columns of 96 hidden units are three blocks, which two ranks cannot share; heads are cut."""
    path = files(tmp_path)
    assert run(["quantize", str(path), str(tmp_path / "q.gguf"), name, "--pure", "--quiet"]) == 0
    expected = cc.models.load(tmp_path / "q.gguf", threads=1).logits([[3, 4, 5]])

    def work(rank, group):
        graph, whole = cut(tmp_path / "q.gguf", rank, 2, group)
        return LanguageModel(graph, threads=1).logits([[3, 4, 5]]), whole

    (got, whole), _ = on_ranks(2, work)
    assert whole.keys() == stays
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())


def test_what_cannot_be_cut_says_so(tmp_path):
    graph = build_graph(bind_model(open_model(files(tmp_path))))
    with pytest.raises(UnsupportedError, match="the model cannot be sharded over 7 ranks"):
        ShardAcrossRanks(0, 7, "g").run(graph)
    with pytest.raises(UsageError):
        ShardAcrossRanks(2, 2, "g").run(graph)
    assert not ShardAcrossRanks(0, 1, "g").run(graph)
    with pytest.raises(UsageError, match="not a rank of 'nobody'"):
        communicator("nobody")
    assert isinstance(communicator(""), Alone)
    with pytest.raises(UnsupportedError):
        cc.models.load(tmp_path / "m.gguf", tensor_parallel=7)
    for options in (["--tensor-parallel", "2", "--device", "cuda:0"], ["--tensor-parallel", "2", "--gpu-layers", "1"]):
        assert run(["generate", str(tmp_path / "m.gguf"), "-p", "a", *options]) in (2, 4)


def test_a_rank_that_ends_or_is_elsewhere_is_an_error():
    one, other = loopbacks(2)
    other._pipes[0].close()
    with pytest.raises(FileAccessError, match="has ended"):
        one.all_reduce(np.ones(3, np.float32))
    one, other = loopbacks(2)
    _send(other._pipes[0], np.ones(2, np.float32))
    with pytest.raises(FileAccessError, match="not at the same step"):
        one.all_reduce(np.ones(3, np.float32))


def test_a_process_that_dies_is_an_error_at_once(tmp_path):
    before = set(multiprocessing.active_children())
    model = cc.models.load(files(tmp_path), threads=1, tensor_parallel=2)
    model.step([3, 4, 5])
    (other,) = set(multiprocessing.active_children()) - before
    other.kill()
    other.join()
    with pytest.raises(FileAccessError, match="E-RANK-DIED"):
        model.step([3, 4, 5])


def test_after_an_error_of_one_rank_nothing_is_added_up(tmp_path, monkeypatch):
    monkeypatch.setattr(tensor_parallel, "ERROR_TIMEOUT", 0)
    model = cc.models.load(files(tmp_path), threads=1, tensor_parallel=2)
    with cc.limits(memory="1KB"), pytest.raises(Error, match="E-RUN-MEMORY"):
        model.step([3, 4, 5])
    with pytest.raises(FileAccessError, match="E-RANK-DIED"):
        model.step([3, 4, 5])


def test_gathering():
    found = on_ranks(3, lambda rank, group: communicator(group).all_gather(np.array([[rank, -rank]], np.int32)))
    for each in found:
        np.testing.assert_array_equal(each, [[[0, 0]], [[1, -1]], [[2, -2]]])
    np.testing.assert_array_equal(Alone().all_gather(np.arange(3)), [[0, 1, 2]])


@pytest.mark.parametrize(
    ("shape", "axis", "spans"),
    [((6, 64), 0, ((2, 4),)), ((6, 64), 1, ((32, 64),)), ((6, 64), 0, ((0, 1), (4, 6))), ((2, 3, 64), 1, ((1, 3),))],
)
@pytest.mark.parametrize("dtype", ["f32", "f16", "q8_0"])
def test_cutting(shape, axis, spans, dtype):
    numbers = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    if dtype == "q8_0":
        tensor = StoredTensor(DTYPES[dtype], shape, Held(cc.encode(numbers, dtype).tobytes()))
        numbers = tensor.dequantize().numpy()
    else:
        tensor = StoredTensor.of(numbers).cast(dtype)
        numbers = tensor.numpy()
    found = cut_tensor(tensor, axis, spans).dequantize("f32" if dtype == "q8_0" else dtype).numpy()
    taken = np.concatenate([np.take(numbers, range(*span), axis) for span in spans], axis)
    np.testing.assert_array_equal(found, taken)

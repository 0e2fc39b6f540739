"""Budgets: the choice against all combinations tried one by one, targets kept to the byte, and less error than the
mixes at their size."""

import itertools
import math

import candle_convert as cc
import numpy as np
import pytest
from candle_convert.convert.cli.main import run
from candle_convert.convert.quantize.recipe.bit_allocation import Offer, allocate, as_recipe
from candle_convert.runtime.base.limits import size as parse_size
from candle_convert.runtime.tensor.dtype import DTYPES
from candle_convert.tests.builders.reproducible_models import noise, write_importance, write_model

TYPES = [DTYPES[name] for name in ("q2_k", "q4_k", "q5_k", "q6_k", "q8_0")]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("unit", [1, 32])
def test_no_combination_is_better(seed, unit):
    random = np.random.default_rng(seed)
    offers = []
    for _ in range(5):
        sizes = np.sort(random.integers(1, 400, len(TYPES))) * unit
        losses = np.sort(random.random(len(TYPES)))[::-1]
        offers.append(
            [Offer(dtype, int(size), float(loss)) for dtype, size, loss in zip(TYPES, sizes, losses, strict=True)]
        )
    low, high = (sum(end(offer.nbytes for offer in each) for each in offers) for end in (min, max))
    for budget in (low, (2 * low + high) // 3, (low + high) // 2, high, 2 * high):
        found = allocate(offers, budget)
        assert sum(offer.nbytes for offer in found) <= budget
        fitting = (every for every in itertools.product(*offers) if sum(offer.nbytes for offer in every) <= budget)
        best = min(math.fsum(offer.loss for offer in every) for every in fitting)
        assert math.fsum(offer.loss for offer in found) == pytest.approx(best, abs=1e-12)


def test_many_tensors_of_any_size_keep_to_the_budget():
    random = np.random.default_rng(0)
    offers = [
        [
            Offer(dtype, int(size), 1 / (1 + size))
            for dtype, size in zip(TYPES, sorted(random.integers(10**6, 10**9, 5)), strict=True)
        ]
        for _ in range(400)
    ]
    budget = sum(each[2].nbytes for each in offers)
    found = allocate(offers, budget)
    assert 0.999 * budget < sum(offer.nbytes for offer in found) <= budget


def test_too_small_a_budget_is_refused():
    with pytest.raises(cc.UsageError, match="smallest types need 10 bytes"):
        allocate([[Offer(TYPES[0], 10, 1.0)]], 9)


def test_recipes_share_rules():
    types = {f"blk.{layer}.ffn.weight": TYPES[layer % 2] for layer in range(4)} | {"a.weight": TYPES[2]}
    recipe = as_recipe(types, dict.fromkeys(types, 7) | {"blk.0.ffn.weight": 100})
    assert recipe.base == TYPES[0]
    assert {rule.match: rule.type for rule in recipe.rules} == {
        r"^blk\.(1|3)\.ffn\.weight$": "q4_k",
        r"^a\.weight$": "q5_k",
    }


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model whose tensors differ in how well they are quantized, and its importance matrix."""
    folder = tmp_path_factory.mktemp("budget")
    found = write_model(folder / "plain.gguf", layers=2, embd=256, inner=512, kv=64, vocab=40)
    graph = cc.open(folder / "plain.gguf")
    for number, name in enumerate(found):
        values = graph.weights[name].numpy()
        if values.ndim > 1:
            values = values * (1 + (number % 5) * np.abs(noise(values.size, number).reshape(values.shape)) ** 3).astype(
                values.dtype
            )
        graph.weights[name] = cc.StoredTensor.of(values)
    cc.save_file(graph.weights, folder / "model.gguf", metadata=graph.metadata)
    write_importance(folder / "imatrix.gguf", found)
    return folder


def lost(folder, path, importance):
    """The mean relative error, weighed by the importance, of all matrices."""
    from candle_convert.convert.quantize.recipe import imatrix
    from candle_convert.convert.translate.model_facts import weight_of

    before, after = cc.open(folder / "model.gguf").weights, cc.open(path).weights
    matrix = imatrix.read(str(folder / "imatrix.gguf")) if importance else None
    total = 0.0
    for name, tensor in before.items():
        if len(tensor.shape) > 1:
            values, rounded = tensor.numpy().astype(np.float64), after[name].dequantize().numpy().astype(np.float64)
            weights = matrix.of(weight_of(name, tensor), name) if matrix else None
            weights = 1 if weights is None else weights
            total += tensor.count * (np.square(values - rounded) * weights).sum() / (np.square(values) * weights).sum()
    return total


@pytest.mark.parametrize("importance", [None, "imatrix.gguf"])
@pytest.mark.parametrize("mix", ["Q3_K_M", "Q4_K_M", "Q5_K_S"])
def test_less_is_lost_than_by_a_mix_of_the_same_size(model, tmp_path, mix, importance):
    matrix = importance and model / importance
    cc.quantize(model / "model.gguf", tmp_path / "mix.gguf", mix, imatrix=matrix)
    size = (tmp_path / "mix.gguf").stat().st_size
    cc.quantize(model / "model.gguf", tmp_path / "auto.gguf", cc.Recipe(target_size=size, imatrix=matrix))
    assert 0.99 * size < (tmp_path / "auto.gguf").stat().st_size <= size
    assert lost(model, tmp_path / "auto.gguf", importance) < lost(model, tmp_path / "mix.gguf", importance)


@pytest.mark.parametrize("size", ["420KiB", "500KiB", "1MiB", "20MiB"])
def test_sizes_are_kept_to(model, tmp_path, size, capsys):
    path = tmp_path / "out.gguf"
    assert (
        run(
            [
                "quantize",
                str(model / "model.gguf"),
                str(path),
                "auto",
                "--target-size",
                size,
                "--metadata",
                "a.long.key=" + "x" * 5000,
            ]
        )
        == 0
    )
    assert path.stat().st_size <= parse_size(size)
    assert "total" in capsys.readouterr().out


def test_a_directory_counts_as_a_whole(model, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "model.gguf").write_bytes((model / "model.gguf").read_bytes())
    (folder / "config.json").write_text('{"a": "' + "x" * 50_000 + '"}')
    cc.quantize(folder, tmp_path / "out", cc.Recipe(target_size="500KiB"), to="gguf")
    sizes = [path.stat().st_size for path in (tmp_path / "out").iterdir()]
    assert len(sizes) == 2
    assert 0.95 * 500 * 1024 < sum(sizes) <= 500 * 1024
    cc.quantize(folder, tmp_path / "one.gguf", cc.Recipe(target_size="500KiB"))
    assert (tmp_path / "one.gguf").stat().st_size <= 500 * 1024


def test_what_options_say_stays(model, tmp_path):
    path = tmp_path / "out.gguf"
    cc.quantize(model / "model.gguf", path, cc.Recipe("auto", {"attn_v": "q8_0"}, output_type="f16", target_bpw=6))
    types = {name: tensor.dtype.name for name, tensor in cc.open(path).weights.items()}
    assert types["output.weight"] == "f16"
    assert {types[f"blk.{layer}.attn_v.weight"] for layer in range(2)} == {"q8_0"}


def test_safetensors_gets_types_that_it_holds(model, tmp_path):
    report = cc.quantize(model / "model.gguf", tmp_path / "out.safetensors", cc.Recipe(target_bpw=12))
    assert {entry["type"] for entry in report.types.values()} <= {"f8_e4m3", "f16", "f32"}
    assert report.bits_per_weight <= 12

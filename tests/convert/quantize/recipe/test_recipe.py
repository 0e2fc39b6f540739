"""Recipes: the mixes written as TOML decide the same, conditions compute as Python does, and what is wrong is said."""

import time
import tomllib
from pathlib import Path

import pytest
from candle_convert.convert.quantize.recipe import recipe as recipes
from candle_convert.convert.quantize.recipe.choose_type import Chooser, Wishes
from candle_convert.convert.quantize.recipe.mix import mix
from candle_convert.convert.quantize.recipe.rule import NAMES, Recipe, Rule
from candle_convert.convert.quantize.recipe.rule_expression import LONGEST, parse
from candle_convert.convert.translate.gguf_file_type import FILE_TYPES
from candle_convert.convert.translate.model_facts import Model, Weight
from candle_convert.runtime.base.errors import FileAccessError, UsageError
from candle_convert.runtime.tensor.dtype import F16

MODEL = Model("llama", layers=24, experts=0, heads=8, kv_heads=2)
PARTS = ("attn_k", "attn_output", "attn_q", "attn_v", "ffn_down", "ffn_gate", "ffn_up")
WEIGHTS = [
    Weight(name, F16, (512, 256))
    for name in ("token_embd.weight", *(f"blk.{layer}.{part}.weight" for layer in range(24) for part in PARTS))
]


def choices(recipe, wishes=None):
    chooser = Chooser(recipe, MODEL, WEIGHTS, wishes or Wishes(), importance=True)
    return [chooser.choose(weight) for weight in WEIGHTS]


@pytest.mark.parametrize("file_type", FILE_TYPES, ids=lambda each: each.name)
def test_a_mix_written_as_toml_decides_the_same(file_type):
    recipe = mix(file_type)
    again = recipes.parse(tomllib.loads(recipes.to_toml(recipe, "comment")), recipe.name)
    assert again.rules == recipe.rules
    assert [choice.dtype for choice in choices(again)] == [choice.dtype for choice in choices(recipe)]


@pytest.mark.parametrize("name", recipes.built_in())
def test_built_in_recipes_are_written_back(name):
    recipe = recipes.find(name)
    assert recipes.parse(tomllib.loads(recipes.to_toml(recipe)), name) == recipe
    assert {choice.dtype for choice in choices(recipe)} != {F16}


def test_a_recipe_on_a_mix_puts_its_rules_first(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(
        'base = "q4_k_m"\non_fallback = "error"\n[[rule]]\nmatch = "ffn_(gate|up)"\nwhen = "layer % 2 == 0"\ntype = '
        '"Q3_K"\n'
        '[[rule]]\nmatch = "attn_k"\ntype = "keep"\n[metadata]\n"general.license" = "mit"\n"x" = 3\n'
    )
    recipe = recipes.find(str(path))
    assert (recipe.on_fallback, dict(recipe.metadata), recipe.file_type) == (
        "error",
        {"general.license": "mit", "x": 3},
        15,
    )
    found = {choice.weight.name: choice.dtype.name for choice in choices(recipe)}
    plain = {choice.weight.name: choice.dtype.name for choice in choices(recipes.find("q4_k_m"))}
    for name, dtype in found.items():
        if "ffn_gate" in name or "ffn_up" in name:
            assert dtype == ("q3_k" if int(name.split(".")[1]) % 2 == 0 else "q4_k")
        else:
            assert dtype == ("f16" if "attn_k" in name else plain[name])


def test_the_type_q4_k_is_a_base_and_not_its_mix():
    assert recipes.parse({"base": "Q4_K"}, "x").rules == ()


def test_unused_overrides_are_known():
    chooser = Chooser(
        Recipe("x", F16),
        MODEL,
        WEIGHTS,
        Wishes(tensor_types=(("attn_v", "q8_0"), ("nothing", "q8_0"))),
        importance=False,
    )
    assert sum(chooser.choose(weight).dtype.name == "q8_0" for weight in WEIGHTS) == 24
    assert chooser.unused == ["nothing"]


VALUES = {"layer": 5, "n": 32, "arch": "llama", "imatrix": True, "index": 0, "columns": 4096, "block": 256}


@pytest.mark.parametrize(
    "text",
    [
        "layer < n/8 or layer >= 7*n/8 or (layer - n//8) % 3 == 2",
        "layer in (1, 5, 9) and not imatrix",
        "arch in ['llama', 'qwen2']",
        "1 <= layer < n // 4",
        "-layer + 2 > -4",
        "columns % block != 0",
        "'lla' in arch",
        "layer > 1.5 and arch != 'x'",
        "True",
    ],
)
def test_conditions_mean_what_they_mean_in_python(text):
    assert parse(text, NAMES).true(VALUES) is bool(eval(text, {}, VALUES))


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os')",
        "layer.bit_length()",
        "n ** 9",
        "[x for x in (1,)]",
        "lambda: 1",
        "layer if n else 0",
        "f'{n}'",
        "unknown < 1",
        "n[0]",
        "layer <",
        "",
        "9 << 99",
        "None",
        "b'x' in arch",
        "x := 1",
        "(" * 199 + ")" * 198,
        "1" * (LONGEST + 1),
        "{1: 2}",
        "n\0",
    ],
)
def test_other_expressions_are_refused(text):
    with pytest.raises(UsageError) as error:
        parse(text, NAMES)
    assert error.value.code == "E-RECIPE-WHEN"


@pytest.mark.parametrize("text", ["arch < 3", "n // 0 == 1", "'a' * n == 'b'", "layer in n", "-arch == 1"])
def test_conditions_that_cannot_be_computed_are_refused(text):
    with pytest.raises(UsageError):
        parse(text, NAMES).true(VALUES)


def test_deep_conditions_are_computed():
    assert parse("not " * 90 + "imatrix", NAMES).true(VALUES) is True


BROKEN = [
    ("no toml", "x = ["),
    ("deep", "x = " + "[" * 5000),
    ("no base", "on_fallback = 'warn'"),
    ("unknown key", "base = 'q4_k'\nbass = 1"),
    ("kind", "base = 4"),
    ("unknown base", "base = 'q9_k'"),
    ("fallback", "base = 'q4_k'\non_fallback = 'maybe'"),
    ("rule without type", "base = 'q4_k'\n[[rule]]\nmatch = 'x'"),
    ("rule with more", "base = 'q4_k'\n[[rule]]\nmatch = 'x'\ntype = 'q8_0'\nif = 'y'"),
    ("pattern", "base = 'q4_k'\n[[rule]]\nmatch = '('\ntype = 'q8_0'"),
    ("rule type", "base = 'q4_k'\n[[rule]]\nmatch = 'x'\ntype = 'q99'"),
    ("condition", "base = 'q4_k'\n[[rule]]\nmatch = 'x'\ntype = 'q8_0'\nwhen = 'exec(1)'"),
    ("rules", "base = 'q4_k'\nrule = [1]"),
]


@pytest.mark.parametrize("text", [text for _, text in BROKEN], ids=[name for name, _ in BROKEN])
def test_broken_recipes_are_refused(tmp_path, text):
    path = tmp_path / "broken.toml"
    path.write_text(text)
    with pytest.raises(UsageError):
        recipes.find(str(path))


@pytest.mark.parametrize("match", ["(([a-z._0-9]+)+)+!", "(x+x+)+y", "(.*)*!", "(" * 3000 + "z" + ")" * 3000])
def test_patterns_that_try_too_much_end(tmp_path, match):
    path = tmp_path / "r.toml"
    path.write_text(f"base = 'q4_k'\n[[rule]]\nmatch = '{match}'\ntype = 'q8_0'\n")
    (rule,) = recipes.find(str(path)).rules
    began = time.process_time()
    assert not rule.pattern.search("blk.0.ffn_gate_exps.weight" * 40)
    assert time.process_time() - began < 2


def test_unknown_and_unreadable_recipes(tmp_path):
    with pytest.raises(UsageError):
        recipes.find("nothing")
    with pytest.raises(FileAccessError):
        recipes.find(str(tmp_path / "missing.toml"))


def test_the_text_of_a_recipe_holds_any_string(tmp_path):
    recipe = Recipe(
        "x", F16, (Rule("a'\"\\\\b\x7f\né", "q8_0", "arch == 'x'"),), metadata=(("k'\x00", 'v"'), ("n", 2), ("b", True))
    )
    path = Path(tmp_path / "x.toml")
    path.write_text(recipes.to_toml(recipe), encoding="utf-8")
    again = recipes.read(path)
    assert (again.rules, again.metadata) == (recipe.rules, recipe.metadata)

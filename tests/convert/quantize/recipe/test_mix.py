"""The types of all tensors of many models, for every file type, against those that llama-quantize chose
(vectors/make_mixes.py)."""

import gzip
import json

import pytest
from candle_convert.convert.quantize.recipe.choose_type import Chooser, Wishes
from candle_convert.convert.quantize.recipe.mix import mix
from candle_convert.convert.translate.gguf_file_type import COPY, FILE_TYPES, of_text
from candle_convert.convert.translate.model_facts import Weight, model_of, order
from candle_convert.runtime.base.errors import UnsupportedError
from candle_convert.runtime.ir.graph import Graph
from candle_convert.runtime.tensor.dtype import F16, F32
from candle_convert.tests.builders.paths import VECTORS

DATA = json.loads(gzip.decompress((VECTORS / "mixes.json.gz").read_bytes()))
WISHES = {
    "": Wishes(),
    "imatrix": Wishes(),
    "pure": Wishes(pure=True),
    "leave": Wishes(leave_output=True),
    "typed": Wishes(output="q8_0", embedding="iq4_nl"),
    "patterns": Wishes(tensor_types=((r"blk\.[0-9]\.attn_v", "q5_k"), ("ffn_down", "q3_K"), ("embd", "q6_k"))),
}


def chosen(model, recipe, wishes, importance):
    """Name -> type for a model of the vectors."""
    weights = [Weight(name, F32 if len(shape) == 1 else F16, tuple(shape)) for name, shape in model["tensors"].items()]
    weights.sort(key=lambda weight: order(weight.name))
    chooser = Chooser(recipe, model_of(Graph(metadata=model["metadata"])), weights, wishes, importance=importance)
    return {weight.name: chooser.choose(weight).dtype.name for weight in weights}


@pytest.mark.parametrize("name", DATA["models"])
def test_types_are_those_of_llama_quantize(name, full):
    """With every file type and wish; every ninth of them, by turns, unless the sweep is exhaustive."""
    model = DATA["models"][name]
    runs = list(model["runs"].items())
    for run, letters in runs if full else runs[list(DATA["models"]).index(name) % 9 :: 9]:
        file_type, _, variant = run.partition(" ")
        wishes, recipe = WISHES[variant], mix(of_text("f16" if file_type == "COPY" else file_type))
        if file_type == "COPY":
            wishes = Wishes(copy=True)
        if letters is None:
            with pytest.raises(UnsupportedError):
                chosen(model, recipe, wishes, variant == "imatrix")
            continue
        expected = dict(zip(model["order"], (DATA["letters"][letter] for letter in letters), strict=True))
        found = chosen(model, recipe, wishes, variant == "imatrix")
        assert list(found) == list(expected), "the order of tensors"
        wrong = {key: (found[key], expected[key]) for key in found if found[key] != expected[key]}
        assert not wrong, run


def test_every_file_type_of_llama_quantize_is_known():
    runs = {run.split()[0].lower() for model in DATA["models"].values() for run in model["runs"]}
    known = {each.name for each in FILE_TYPES if each.listed} | {"q3_k", "q4_k", "q5_k", COPY}
    assert runs == known


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Q4_K_M", "q4_k_m"),
        ("q4_k", "q4_k_m"),
        ("15", "q4_k_m"),
        ("Q3_K", "q3_k_m"),
        ("0", "f32"),
        ("39", None),
        ("nvfp4", "nvfp4"),
        ("q9", None),
    ],
)
def test_names_and_numbers_of_file_types(text, name):
    found = of_text(text)
    assert (found and found.name) == name

"""Counts in messages: one thing is named in the singular, several in the plural."""

import ast
import re
from pathlib import Path

import candle_convert as cc
import numpy as np
import pytest
from onnx import TensorProto, helper

ROOT = Path(cc.__file__).parent
PARTS = ("convert", "formats", "models", "nn", "ops", "optim", "runtime", "tensors", "training")
NOUNS = "dims|axes|elements|inputs|outputs|rows|entries|dimensions|shards|gradients|arguments|characters|tokens|graphs"
VERBS = "are|cannot|do|fit|follow|have|leave|were|which|whose"
PLURAL = re.compile(rf" (?:{NOUNS})\b(?! (?:{VERBS})\b)(?!, (?:of )?(?:which|whose)\b)")
KERNELS = re.compile(r"_(kernel|cuda)\.py$|/(kernels|cuda)/")
LONGEST = 120


def plurals_of_lengths(path):
    """Lines of f-strings that write ``len(...)`` with a plural noun."""
    for node in ast.walk(ast.parse(path.read_text())):
        for value, text in zip(node.values, node.values[1:], strict=False) if isinstance(node, ast.JoinedStr) else ():
            number = value.value if isinstance(value, ast.FormattedValue) else None
            length = isinstance(number, ast.Call) and ast.unparse(number.func) == "len"
            if length and isinstance(text, ast.Constant) and PLURAL.match(text.value):
                yield f"{path.relative_to(ROOT)}:{node.lineno}"


def test_lengths_are_counted_by_one_function():
    paths = [path for part in PARTS for path in (ROOT / part).rglob("*.py") if not KERNELS.search(str(path))]
    assert not [line for path in paths for line in plurals_of_lengths(path)]


WRITTEN = (
    "tokens|layers|heads|channels|groups|classes|columns|rows|elements|entries|tensors|files|members|dims|dimensions|"
    "axes|indices|positions|samples|characters|nodes|parameters|shards|marks|blocks|scales|models|inputs|outputs|"
    "experts|patches|stages|pixels|frames|codebooks|strides|buckets|ranks|features|sequences|steps|modules|threads|"
    "operations|seconds|times|weights|items|optimizers|batches|arrays|numbers|pieces|lengths|parts|schedules|"
    "milestones|checks|anchors|pads|zeros|cells|bits|activations|fields|windows|counts|sums|bins|biases|iterations"
)
COUNTED = re.compile(
    rf"(?<!\bof )(?<!\bto )(?<!most )(?<!least )\{{(?![A-Z_0-9.]+:)([^{{}}!:\"]+?):,\}} (?:{WRITTEN})\b"
)
"""A number with separators and a plural noun, apart from constants and numbers after "of", "to", "most", "least"."""


def test_numbers_with_nouns_are_counted_by_one_function():
    found = []
    for path in (path for part in PARTS for path in (ROOT / part).rglob("*.py") if not KERNELS.search(str(path))):
        text = path.read_text()
        found += [f"{path.relative_to(ROOT)}: {match[0]}" for match in COUNTED.finditer(text)]
    assert not found


def joined_to_words(path):
    """Lines of f-strings whose counts stand at a word without a space, as parts of a message on several lines may."""
    for node in ast.walk(ast.parse(path.read_text())):
        pairs = zip(node.values, node.values[1:], strict=False) if isinstance(node, ast.JoinedStr) else ()
        for first, second in pairs:
            texts = [each.value for each in (first, second) if isinstance(each, ast.Constant)]
            counts = [each for each in (first, second) if isinstance(each, ast.FormattedValue)]
            called = counts and isinstance(counts[0].value, ast.Call) and ast.unparse(counts[0].value.func) == "counted"
            joined = texts and re.match(r".*[\w,;:]$" if texts[0] is getattr(first, "value", None) else r"\w", texts[0])
            if called and joined:
                yield f"{path.relative_to(ROOT)}:{node.lineno}"


def test_counts_are_words_of_their_own():
    paths = [path for part in PARTS for path in (ROOT / part).rglob("*.py") if not KERNELS.search(str(path))]
    assert not [line for path in paths for line in joined_to_words(path)]


def test_shape_inference_says_1_dim(tmp_path):
    node = helper.make_node("Transpose", ["x"], ["y"], perm=[1, 0])
    info = helper.make_tensor_value_info
    graph = helper.make_graph([node], "g", [info("x", TensorProto.FLOAT, [3])], [info("y", TensorProto.FLOAT, [3])])
    path = tmp_path / "m.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]).SerializeToString())
    with pytest.raises(cc.FormatError, match=r"\b1 axis\b"):
        cc.InferenceSession(path).run(None, {"x": np.zeros(3, np.float32)})

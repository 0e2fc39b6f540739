"""Every operator on its examples changed at random: dtypes, lengths down to zero, axes that broadcast, special values,
strides of all kinds.

Results are compared with onnxruntime and the ONNX reference evaluator, dtypes and shapes with what inference says. An
oracle that refuses is no oracle; neither is one whose result contradicts the standard's own shape inference.
CANDLE_SEED chooses the changes, CANDLE_FULL=1 makes many.
"""

import re

import candle_convert as cc
import candle_convert.formats.containers.onnx.reader as onnx_graph
import ml_dtypes
import numpy as np
import onnx
import pytest
from candle_convert.runtime.ir.op import Example
from candle_convert.runtime.ir.registry import operators
from candle_convert.runtime.ir.shape_inference import infer
from candle_convert.runtime.session import Session
from candle_convert.runtime.tensor.dtype import STRING, of_numpy
from candle_convert.tests.builders.random_examples import laid_out, mutated
from candle_convert.tests.builders.single_node import model, with_onnxruntime, with_reference
from hypothesis import HealthCheck, given, settings, strategies
from hypothesis import seed as seeded

SAMPLED, FULL = 5, 200
"""Changed examples of each operator."""
OPERATORS = [
    pytest.param(operator, id=f"{domain}{'.' if domain else ''}{name}")
    for (domain, name), operator in operators().items()
    if operator.examples
]
ROUGH = {np.dtype(np.float16): 4e-3, np.dtype(ml_dtypes.bfloat16): 3e-2}
WIDE = (np.float16, np.float64, ml_dtypes.bfloat16)

CRASHES = re.compile(r"com\.microsoft\.|ai\.onnx\.ml\.|\.Attention$")
"""Operators of onnxruntime that divide by a length of zero, call abort or give memory that nothing was written to; they
are not asked about empty arrays."""


def empty(example):
    return any(
        array.size == 0
        for value in example.inputs
        if value is not None
        for array in (value if isinstance(value, list) else [value])
    )


def always(example):
    return True


def single(example):
    return 1 in example.inputs[0].shape


def odd(example):
    return bool(example.inputs[0].shape[-1] % 2)


def averaged(example):
    return example.attributes.get("aggregate_function") == "AVERAGE"


def extreme(example):
    return example.attributes.get("aggregate_function") in ("MIN", "MAX")


def whole(example):
    return example.inputs[0].dtype != np.float32


def half(example):
    return example.inputs[0].dtype == np.float16


def unsorted(example):
    return example.attributes.get("sorted") == 0


def small(example):
    if example.inputs[0].dtype.kind in "OUT":
        return False
    dtype = of_numpy(example.inputs[0].dtype)
    return dtype.kind == "float" and dtype.bits <= 8


def infinite(example):
    return example.inputs[0].dtype.kind == "f" and bool(np.isinf(example.inputs[0]).any())


def repeated(example):
    """Whether an axis is named twice, of an array without elements."""
    axes = (
        []
        if len(example.inputs) < 2 or example.inputs[1] is None
        else (example.inputs[1] % max(1, example.inputs[0].ndim)).tolist()
    )
    return not example.inputs[0].size and len(set(axes)) < len(axes)


def timeless(example):
    return 0 in example.inputs[0].shape[:2]


def blank(example):
    return "" in example.inputs[0].reshape(-1).tolist()


WRONG = {
    ("ArgMax", empty): ("onnxruntime", "picks an element along an empty axis; the reference evaluator refuses"),
    ("ArgMin", empty): ("onnxruntime", "as ArgMax"),
    ("ReduceMean", empty): ("onnxruntime", "says 0 where NumPy and PyTorch say NaN; the standard leaves it open"),
    ("DFT", empty): ("onnxruntime", "transforms signals of no samples"),
    ("QuantizeLinear", always): (
        "reference",
        "casts infinite values to integers, which is what the processor makes of them",
    ),
    ("DequantizeLinear", small): (
        "reference",
        "leaves the zero point out, for which the formula remains the same, as the definition says",
    ),
    ("Cast", small): (
        "reference",
        "makes another integer of NaN than the processor does; the definition leaves it open",
    ),
    ("ReduceLogSumExp", infinite): ("reference", "subtracts infinite values from themselves"),
    ("LayerNormalization", infinite): (
        "onnxruntime",
        "has running means, which subtract infinite values from themselves",
    ),
    ("MeanVarianceNormalization", always): ("onnxruntime", "has less than zero as the variance of equal values"),
    **{
        (f"Reduce{name}", repeated): ("onnxruntime", "takes away an axis for each time that it is named")
        for name in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
    },
    ("RMSNormalization", half): ("reference", "gives the dtype of the input, not that of the scale"),
    ("ConvTranspose", always): (
        "reference",
        "pads by less than zero where an output_shape is longer than the taps reach; onnxruntime refuses",
    ),
    **{
        (name, timeless): ("onnxruntime", "forgets the initial state of a sequence of no elements")
        for name in ("RNN", "GRU", "LSTM")
    },
    ("Unique", unsorted): ("reference", "gives as many lines as there are, those that are repeated among them"),
    ("StringNormalizer", blank): ("reference", "leaves empty strings out"),
    ("Conv", always): ("reference", "multiplies infinite values with the zeros between the taps of a dilated kernel"),
    ("OneHot", always): ("reference", "multiplies the off value with zero"),
    ("Pad", always): ("reference", "has NaN for the zero of f8e8m0, whose smallest number ml_dtypes and we take"),
    ("TreeEnsemble", always): (
        "reference",
        "gives the largest number where a least or greatest leaf is asked for and there is none",
    ),
    ("GridSample", always): ("reference", "rounds each of the neighbours of integers before it adds them"),
    ("QLinearSoftmax", single): ("onnxruntime", "has tables for rows of several elements"),
    ("RotaryEmbedding", odd): ("onnxruntime", "reads heads of odd sizes beyond their end"),
    ("MoE", half): ("onnxruntime", "computes SwiGLU in f16 with values of other elements; in f32 it is right"),
    ("TreeEnsembleRegressor", averaged): (
        "onnxruntime",
        "leaves the base value out where a target has no leaf; the reference evaluator has it",
    ),
    ("TreeEnsembleRegressor", extreme): ("reference", "leaves targets without a leaf at the largest number"),
    ("TreeEnsembleRegressor", whole): ("reference", "keeps integers where the definition says float"),
    **{
        (name, always): ("reference", "keeps the input's dtype where the definition says f32")
        for name in (
            "FeatureVectorizer",
            "LinearRegressor",
            "SVMClassifier",
            "SVMRegressor",
            "Scaler",
            "Normalizer",
            "Imputer",
        )
    },
}
"""Oracles that are not asked about an operator, or about its empty arrays, and why."""
ROUNDED = ("Resize", "Upsample")
"""Operators that cut real numbers to integers, like those with a Q in their names."""
LENIENT = {
    "SkipLayerNormalization": "a skip with more batches than the input is read as far as it fits",
    "BitCast": "a cast between widths, where onnxruntime is asked in f32",
    "Imputer": "values beyond the features are passed over",
    "LinearClassifier": "coefficients beyond the features are passed over",
    "LinearRegressor": "as LinearClassifier",
    "GatherND": "tuples of no indices, which the definition excludes",
    "Squeeze": "an axis that is named twice",
    "Split": "no lengths where there are outputs",
    "SplitToSequence": "no lengths where there are elements",
    "SequenceInsert": "a tensor of another dtype, where onnxruntime is asked in f32",
    "MaxUnpool": "indices beyond the tensor that was pooled",
    "DFT": "a half of a spectrum whose signal has no samples",
    "NhwcMaxPool": "as MaxPool",
    "MaxPool": "windows larger than the input, with a result of no elements",
    "AveragePool": "as MaxPool",
    "LpPool": "as MaxPool",
    "MatMulBnb4": "scales beyond the blocks are passed over",
    "NonMaxSuppression": "limits of no elements where there are no boxes",
    "CenterCropPad": "a scalar as the list of lengths",
}
"""What onnxruntime computes and we refuse, for good reason."""


def widened(example):
    """The example with f16, bf16 and f64 data as f32, which onnxruntime always has kernels for; None if it
    has no such data."""

    def wide(item):
        return item.astype(np.float32) if isinstance(item, np.ndarray) and item.dtype in WIDE else item

    inputs = tuple(
        [wide(item) for item in value] if isinstance(value, list) else wide(value) for value in example.inputs
    )
    same = all(a is b for a, b in zip(inputs, example.inputs, strict=True) if not isinstance(a, list))
    return None if same else Example(inputs, example.attributes, example.outputs)


def standard(made):
    """Dtype and shape of each output as the standard's own inference has them, None where it does not know."""
    try:
        found = onnx.shape_inference.infer_shapes(made, strict_mode=True, data_prop=True).graph.output
    except onnx.shape_inference.InferenceError:
        return None
    rows = []
    for value in found:
        kind = value.type.tensor_type
        known = value.type.WhichOneof("value") == "tensor_type" and kind.elem_type
        rows.append(
            (kind.elem_type, [dim.dim_value if dim.HasField("dim_value") else None for dim in kind.shape.dim])
            if known
            else None
        )
        if known and not kind.HasField("shape"):
            rows[-1] = (kind.elem_type, None)
    return rows


def contradicts(results, rows):
    """Whether results are not what the standard's inference says."""
    for result, row in zip(results, rows or [], strict=False):
        if row is None or not isinstance(result, np.ndarray | np.generic):
            continue
        array = np.asarray(result)
        number = onnx.TensorProto.STRING if array.dtype.kind in "OUT" else of_numpy(array.dtype).onnx
        if number != row[0] or (row[1] is not None and len(row[1]) != array.ndim):
            return True
        if row[1] is not None and any(
            dim is not None and dim != length for dim, length in zip(row[1], array.shape, strict=True)
        ):
            return True
    return False


def oracles(operator, example, made):
    """Answers by name; `onnxruntime` may have been given wider numbers."""
    rows = standard(made)
    none = empty(example)
    skipped = {oracle for (name, when), (oracle, _) in WRONG.items() if name == operator.name and when(example)}
    found = {}
    if "onnxruntime" not in skipped and not (none and CRASHES.search(f"{operator.domain}.{operator.name}")):
        found["onnxruntime"] = with_onnxruntime(operator, example)
        wide = widened(example)
        if isinstance(found["onnxruntime"], str) and wide is not None:
            found["onnxruntime in f32"] = with_onnxruntime(operator, wide)
    if "reference" not in skipped:
        found["reference"] = with_reference(operator, example)
    right = {name: answer for name, answer in found.items() if not isinstance(answer, str)}
    return {
        name: answer for name, answer in right.items() if name == "onnxruntime in f32" or not contradicts(answer, rows)
    }


def spelled(text):
    """A text, of numbers one spelling: the standard leaves open whether 0 is 0 or 0.0 and NaN is nan."""
    try:
        return str(float(text))
    except ValueError:
        return str(text)


def same(got, expected, tolerance, *, wide, rounds):
    if isinstance(expected, list):
        assert isinstance(got, list)
        assert len(got) == len(expected)
        for one, other in zip(got, expected, strict=True):
            same(one, other, tolerance, wide=wide, rounds=rounds)
        return
    expected = np.asarray(expected)
    assert got.shape == expected.shape
    if got.dtype.kind in "OUT":
        assert [spelled(text) for text in got.reshape(-1)] == [spelled(text) for text in expected.reshape(-1)]
        return
    assert wide or got.dtype == expected.dtype
    rough = ROUGH.get(got.dtype, 0)
    if got.dtype.kind == "V" or wide:
        got, expected = got.astype(np.float64), expected.astype(np.float64)
    step = 0 if not rounds else 1 if got.dtype.kind in "iu" else 2e-2
    plain = got.astype(np.int64) if step == 1 else got
    np.testing.assert_allclose(
        plain, expected, rtol=max(tolerance.rtol, rough, 1e-4), atol=max(tolerance.atol, rough, 1e-5, step)
    )


def judge(operator, example, chooser):
    """What is wrong with our result, and the kind of it; None where nothing is."""
    try:
        made, feeds = model(operator, example)
    except (ValueError, TypeError, KeyError):
        return None  # values that the file format does not hold
    right = oracles(operator, example, made)
    fed = {
        name: [laid_out(item, chooser) for item in value] if isinstance(value, list) else laid_out(value, chooser)
        for name, value in feeds.items()
    }
    try:
        got = Session(onnx_graph.graph_of(made)).run(None, fed)
    except cc.Error as error:
        ran = operator.name not in LENIENT and {"onnxruntime", "onnxruntime in f32"} & set(right)
        return ("refused", f"{error}") if ran else None
    if not right:
        return None
    graph = onnx_graph.graph_of(made)
    infer(graph)
    for value, result in zip(graph.outputs, got, strict=True):
        if isinstance(result, np.ndarray):
            dtype = STRING if result.dtype.kind in "OUT" else of_numpy(result.dtype)
            if value.dtype is not dtype:
                return ("inferred", f"{value.name} of {value.dtype} is {dtype}")
            if value.shape is not None and (
                len(value.shape) != result.ndim
                or any(
                    isinstance(dim, int) and dim != length
                    for dim, length in zip(value.shape, result.shape, strict=True)
                )
            ):
                return ("inferred", f"{value.name} of {value.shape} is {result.shape}")
    if not operator.repeatable:
        return None
    failures = []
    for name, answer in right.items():
        try:
            same(
                got,
                list(answer),
                operator.tolerance,
                wide=name.endswith("f32"),
                rounds="Q" in operator.name or operator.name in ROUNDED,
            )
        except AssertionError as error:
            failures.append(f"{name}: {error}")
    return ("differs", "\n".join(failures)) if len(failures) == len(right) else None


def described(example):
    """The inputs for a message."""

    def text(item):
        if isinstance(item, list):
            return f"[{', '.join(map(text, item))}]"
        return "None" if item is None else f"{item.dtype}{list(item.shape)} {item.tolist() if item.size <= 40 else ''}"

    return "\n".join(f"  {text(item)}" for item in example.inputs) + f"\n  {example.attributes}"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("operator", OPERATORS)
def test_changed_examples(operator, seed, full):
    @seeded(f"{seed} {operator.domain} {operator.name}")
    @settings(max_examples=FULL if full else SAMPLED, suppress_health_check=list(HealthCheck))
    @given(strategies.randoms(use_true_random=False))
    def check(chooser):
        example = mutated(operator, chooser.choice(operator.examples), chooser)
        found = judge(operator, example, chooser)
        assert found is None, f"{found[0]}: {found[1]}\n{described(example)}"

    check()

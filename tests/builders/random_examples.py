"""Operator examples changed at random within their definitions: dtypes, lengths, special values."""

import functools

import numpy as np
import onnx
from candle_convert.runtime.ir.op import Example
from candle_convert.runtime.tensor.dtype import BY_ONNX
from candle_convert.tests.builders.single_node import arrays

ONNX_NAMES = {
    f"tensor({name})": item
    for name, item in {
        "float": "FLOAT",
        "double": "DOUBLE",
        "float16": "FLOAT16",
        "bfloat16": "BFLOAT16",
        "int8": "INT8",
        "int16": "INT16",
        "int32": "INT32",
        "int64": "INT64",
        "uint8": "UINT8",
        "uint16": "UINT16",
        "uint32": "UINT32",
        "uint64": "UINT64",
        "bool": "BOOL",
        "int4": "INT4",
        "uint4": "UINT4",
        "int2": "INT2",
        "uint2": "UINT2",
        "float8e4m3fn": "FLOAT8E4M3FN",
        "float8e4m3fnuz": "FLOAT8E4M3FNUZ",
        "float8e5m2": "FLOAT8E5M2",
        "float8e5m2fnuz": "FLOAT8E5M2FNUZ",
        "float4e2m1": "FLOAT4E2M1",
        "float8e8m0": "FLOAT8E8M0",
    }.items()
}
SPECIAL = (float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 65504.0, 1e-6)
FINITE = {
    "DynamicQuantizeLinear",
    "DynamicQuantizeMatMul",
    "DynamicQuantizeLSTM",
    "MatMulIntegerToFloat",
    "MoE",
    "QMoE",
    "MelWeightMatrix",
    "Bernoulli",
    "OneHot",
    "STFT",
    "DFT",
    "GridSample",
    "RoiAlign",
    "MaxRoiPool",
    "NonMaxSuppression",
    "TopK",
    "Unique",
    "DeformConv",
    "Resize",
    "Upsample",
    "Attention",
    "GRU",
    "LSTM",
    "RNN",
    "LRN",
    "MaxPool",
    "GlobalMaxPool",
}
"""Operators for which special values mean nothing (ranges, coordinates, probabilities, orders), or whose oracles lose
them: they multiply what a mask leaves out by zero, onnxruntime's sigmoid and tanh of NaN are finite, its LRN
keeps running sums, and its maxima leave NaN out where PyTorch, which the models come from, hands it on."""
FIRST_ONLY = ("DequantizeLinear", "QuantizeLinear", "QLinearConv", "QLinearMatMul")
"""Operators whose scales have to be finite, as those of all of onnxruntime's own."""
BROADCAST = (
    "Add",
    "And",
    "BitShift",
    "BitwiseAnd",
    "BitwiseOr",
    "BitwiseXor",
    "Div",
    "Equal",
    "Expand",
    "Greater",
    "GreaterOrEqual",
    "Less",
    "LessOrEqual",
    "MatMul",
    "Max",
    "Mean",
    "Min",
    "Mod",
    "Mul",
    "Or",
    "Pow",
    "Sub",
    "Sum",
    "Where",
    "Xor",
)
"""Operators whose inputs may have different numbers of axes."""
LENGTHS = (0, 1, 2, 3, 5, 9)


@functools.cache
def contrib():
    """Definitions of onnxruntime's own operators by domain and name."""
    from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema

    return {(schema.domain, schema.name): schema for schema in get_all_operator_schema()}


@functools.cache
def types(domain, name):
    """For each formal input: its type variable, the dtypes that it may have, whether it may be repeated."""
    schema = onnx.defs.get_schema(name, domain) if onnx.defs.has(name, domain) else contrib().get((domain, name))
    if schema is None:
        return ()
    allowed = {constraint.type_param_str: tuple(constraint.allowed_type_strs) for constraint in schema.type_constraints}
    found = []
    for formal in schema.inputs:
        variable = formal.typeStr if hasattr(formal, "typeStr") else formal.type_str
        strings = allowed.get(variable, (variable,))
        dtypes = tuple(BY_ONNX[getattr(onnx.TensorProto, ONNX_NAMES[text])] for text in strings if text in ONNX_NAMES)
        found.append(
            (variable, dtypes, "Variadic" in str(formal.option), bool(getattr(formal, "is_homogeneous", True)))
        )
    return tuple(found)


def formal(operator, index):
    """The definition of input `index`."""
    known = types(operator.domain, operator.name)
    if index < len(known):
        return known[index]
    return known[-1] if known and known[-1][2] else None


def converted(array, dtype):
    """The values in another dtype, kept within its range."""
    wanted = dtype.as_numpy()
    if not isinstance(array, np.ndarray) or array.dtype == wanted or array.dtype.kind in "OUT":
        return array
    wide = np.asarray(np.nan_to_num(array.astype(np.float64), nan=1, posinf=7, neginf=-7))
    if dtype.kind == "bool":
        return np.asarray(wide > 0)
    if dtype.kind == "float":
        reach = {8: 240, 4: 6}.get(dtype.bits, 3e4)
        return (
            np.asarray(np.clip(wide, -reach, reach)).astype(np.float32).astype(wanted)
            if dtype.bits < 32
            else wide.astype(wanted)
        )
    low, high = (
        (0, 2**dtype.bits - 1) if dtype.kind == "uint" else (-(2 ** (dtype.bits - 1)), 2 ** (dtype.bits - 1) - 1)
    )
    wide = np.asarray(np.abs(np.rint(wide)) if dtype.kind == "uint" else np.rint(wide))
    bounded = np.asarray(np.clip(wide, max(low, -(2**40)), min(high, 2**40)))
    return bounded.astype(np.int64).astype(wanted)


def each(values, change):
    """The inputs with `change(array, index)` in place of every array."""
    return [
        None
        if value is None
        else [change(item, index) for item in value]
        if isinstance(value, list)
        else change(value, index)
        for index, value in enumerate(values)
    ]


def with_other_dtypes(operator, values, random):
    """One type variable takes another of its dtypes, in all inputs that have it."""
    variables = {}
    for index, value in enumerate(values):
        known = formal(operator, index)
        if known is not None and value is not None and len(known[1]) > 1:
            variables[known[0]] = known[1]
    if not variables:
        return values
    chosen = random.choice(sorted(variables))
    dtype = random.choice(variables[chosen])

    def change(array, index):
        known = formal(operator, index)
        return converted(array, dtype) if known is not None and known[0] == chosen else array

    return each(values, change)


def with_other_lengths(values, random):
    """One length becomes another wherever it occurs as the length of an axis."""
    lengths = sorted(
        {
            length
            for value in values
            for array in (value if isinstance(value, list) else [value])
            if isinstance(array, np.ndarray)
            for length in array.shape
        }
    )
    if not lengths:
        return values
    old, new = random.choice(lengths), random.choice(LENGTHS)

    def change(array, _):
        if not isinstance(array, np.ndarray):
            return array
        shape = tuple(new if length == old else length for length in array.shape)
        if not array.size:
            return np.zeros(shape, array.dtype) if array.dtype.kind != "O" else np.full(shape, "", object)
        return np.resize(array, shape)

    return each(values, change)


def with_special_values(operator, values, random):
    """A few elements of f32 and f64 data become NaN, infinite, zero, large; in narrower types oracles overflow in
    between."""

    masked = operator.domain == "com.microsoft" and "Attention" in operator.name
    if operator.name in FINITE or masked or operator.domain == "ai.onnx.ml":
        return values
    first = len(values) if operator.domain == "" and operator.name not in FIRST_ONLY else 1

    def change(array, index):
        if (
            not isinstance(array, np.ndarray)
            or array.dtype not in (np.float32, np.float64)
            or array.size < 2
            or index >= first
        ):
            return array
        made = array.copy()
        flat = made.reshape(-1)
        for _ in range(random.randint(1, 3)):
            flat[random.randrange(flat.size)] = random.choice(SPECIAL)
        return made

    return each(values, change)


def with_broadcast_axes(values, random):
    """One axis of one input becomes 1, or its leading axis is left out or doubled by a new one."""
    places = [index for index, value in enumerate(values) if isinstance(value, np.ndarray) and value.ndim]
    if not places:
        return values
    place = random.choice(places)
    array, how = values[place], random.randrange(3)
    if how == 0:
        axis = random.randrange(array.ndim)
        array = array.take(range(min(1, array.shape[axis])), axis=axis)
    elif how == 1 and array.shape[0]:
        array = np.asarray(array[0], array.dtype)
    else:
        array = array[np.newaxis]
    return [array if index == place else value for index, value in enumerate(values)]


def mutated(operator, example, random):
    """The example with one to three changes."""
    values = arrays(example)
    for _ in range(random.randint(1, 3)):
        kind = random.randrange(4)
        if kind == 0:
            values = with_other_dtypes(operator, values, random)
        elif kind == 1:
            values = with_other_lengths(values, random)
        elif kind == 2:
            values = with_special_values(operator, values, random)
        elif operator.domain == "" and operator.name in BROADCAST:
            values = with_broadcast_axes(values, random)
    return Example(tuple(values), example.attributes, example.outputs)


def laid_out(array, random):
    """The same values with other strides: reversed, transposed, or every other element of more."""
    if not isinstance(array, np.ndarray) or not array.ndim or array.dtype.kind in "OUT":
        return array
    how = random.randrange(4)
    if how == 0:
        return array[::-1].copy()[::-1]
    if how == 1:
        return np.ascontiguousarray(array.T).T
    if how == 2:
        return np.repeat(array, 2, axis=-1)[..., ::2]
    return array

"""Public functions: all of them take arrays in place of tensors, and return tensors with PyTorch's values."""

import inspect

import candle_convert as cc
import numpy as np
import pytest
import torch
from candle_convert.tensors.namespace import PUBLIC
from candle_convert.tensors.public_function import LIKE

SQUARE = np.float32([[0.9, 0.1, 0.2, 0.12], [0.1, 0.8, 0.11, 0.22], [0.2, 0.11, 0.7, 0.13], [0.12, 0.22, 0.13, 0.6]])
ROW, COUNTS, MASK = SQUARE[0], np.int64([0, 2, 1, 3]), SQUARE > 0.15
PIVOTS = np.int32([1, 2, 3, 4])
SPECTRA = (SQUARE[:3] + 1j * SQUARE[1:]).astype(np.complex64)
INDICES = np.int64([[0, 1, 2, 3]])
ARGUMENTS = [
    (SQUARE,), (ROW[:1],), (SQUARE, SQUARE), (SQUARE, 1), (SQUARE, 0, 1), (SQUARE, ROW), (ROW, ROW), (ROW,), (COUNTS,),
    (COUNTS, COUNTS), (SQUARE, MASK), (SQUARE, MASK, 2.0), (SQUARE, MASK, SQUARE), (SQUARE, 0, COUNTS),
    (SQUARE, 0, INDICES), (SQUARE, INDICES, 0), (SQUARE, 0, COUNTS, 1.0), (SQUARE, 0, COUNTS, SQUARE),
    (SQUARE, 0, INDICES, SQUARE), (SQUARE, 0, INDICES, SQUARE, "sum"), (SQUARE, 0, 0, 2), (SQUARE, [4, 4]),
    (SQUARE, SQUARE, SQUARE), (ROW, SQUARE, ROW), (SQUARE, ROW, ROW), (SQUARE[None], SQUARE[None], SQUARE[None]),
    (SQUARE[None], SQUARE[None]), ([SQUARE, SQUARE],), (SQUARE, ROW, 0), (SQUARE, 0, [2, 2]), (SQUARE, [2, 2]),
    (MASK, SQUARE, SQUARE), (MASK,), (SQUARE, (COUNTS, COUNTS), ROW), (SQUARE, [4, 4], [4, 1]), (COUNTS, SQUARE.shape),
    (SQUARE, COUNTS, ROW), (SQUARE, 2, 0, 1.0), (SQUARE, 1.0), (SQUARE[:, :2, None], ROW[:2]), (SQUARE, ROW, 0, 1),
    (np.arange(4.0, dtype=np.float32), SQUARE[0].cumsum()), (2, ROW), (SQUARE[None, None], 0), (ROW, 4),
    (SQUARE[:, :3], SQUARE[:, 1:]),
    (SQUARE, SQUARE, 0.25), (SQUARE, 0.2, 0.7), (SQUARE, 1, 0), (SQUARE[None], 2), (SQUARE, (1,)), (SQUARE, (1, 0)),
    (SQUARE, SQUARE[None], SQUARE[None]), (SQUARE, ROW, [4], [1]), (SQUARE, 0, COUNTS, SQUARE, "amax"),
    (SQUARE, SQUARE, PIVOTS), (SQUARE, PIVOTS), (SQUARE, ROW, SQUARE), (SQUARE, 0, 2, 1),
    (SPECTRA,), (SQUARE[:, :2],), (ROW, 4, 1, 4, ROW, True, "reflect", False, True, True),
    (SPECTRA, 4, 1, 4, ROW),
]  # fmt: skip
"""Arguments, one tuple of which suits each function."""
DRAWN = ("bernoulli", "empty_like", "multinomial", "normal", "rand_like", "randint_like", "randn_like")
"""Functions whose elements are not determined."""


OTHERS = ("nonzero_static", "set_rng_state")
"""Functions that need an argument by name, or change a setting."""


def names():
    """Public functions of tensors; those that change their argument need a tensor."""
    for name, function in PUBLIC.items():
        if inspect.isfunction(function) and not name.endswith("_"):
            parameters = inspect.signature(getattr(cc, name)).parameters.values()
            if name not in OTHERS and any(LIKE in str(parameter.annotation) for parameter in parameters):
                yield name


def converted(arguments, convert):
    if isinstance(arguments, list | tuple):
        return type(arguments)(converted(item, convert) for item in arguments)
    return convert(arguments) if isinstance(arguments, np.ndarray) else arguments


def outcome(module, name, arguments, convert):
    """What a function returns; None if it does not take the arguments."""
    module.manual_seed(0)
    try:
        return getattr(module, name)(*converted(arguments, convert))
    except (cc.Error, RuntimeError, TypeError, ValueError, IndexError, AttributeError, NotImplementedError):
        return None


def leaves(result, kind):
    """The arrays and Python values of a result, and how many tensors there are."""
    if isinstance(result, list | tuple) and not isinstance(result, torch.Size):
        parts = [leaves(item, kind) for item in result]
        return [item for found, _ in parts for item in found], sum(count for _, count in parts)
    return [np.asarray(result)], int(isinstance(result, kind))


@pytest.mark.parametrize("name", sorted(names()))
@pytest.mark.filterwarnings("ignore")
def test_functions_take_arrays_and_return_tensors(name):
    known = hasattr(torch, name)
    for arguments in ARGUMENTS:
        theirs = outcome(torch, name, arguments, torch.tensor)
        ours = outcome(cc, name, arguments, cc.tensor) if theirs is not None or not known else None
        if ours is not None:
            break
    else:
        pytest.fail(f"no arguments suit {name}")
    values, count = leaves(ours, cc.Tensor)
    found, same = leaves(outcome(cc, name, arguments, np.array), cc.Tensor)
    assert same == count
    for one, other in zip(found, values, strict=True):
        np.testing.assert_array_equal(one, other)
    if known and name not in DRAWN:
        expected, number = leaves(theirs, torch.Tensor)
        assert number == count
        for one, other in zip(values, expected, strict=True):
            if other.dtype == object:  # dtypes
                assert repr(other.item()).endswith(one.item().numpy)
                continue
            np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-5)


def test_results_are_tensors_for_lists_and_numbers():
    assert cc.exp([0.0, 1.0]).tolist() == pytest.approx(torch.exp(torch.tensor([0.0, 1.0])).tolist())
    assert cc.cat([[1, 2], np.array([3])]).tolist() == [1, 2, 3]
    assert cc.clamp(input=np.arange(4), min=np.int64([1, 1, 3, 3])).tolist() == [1, 1, 3, 3]
    assert isinstance(cc.relu(-1.0), cc.Tensor)


@pytest.mark.parametrize("name", ["exp_", "add_"])
def test_functions_that_change_their_argument_need_a_tensor(name):
    with pytest.raises(cc.UsageError, match=f"{name} changes a tensor, not ndarray"):
        getattr(cc, name)(ROW, *(() if name == "exp_" else (1,)))

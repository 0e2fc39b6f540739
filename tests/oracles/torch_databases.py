"""torch's own databases of operators, layers and optimizers as oracles: the same calls by both, values and gradients
compared, what only f32 makes differ judged against f64."""

from __future__ import annotations

import copy
import dataclasses
import functools
import importlib
import sys
import types
import unittest
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import candle_convert as cc
import numpy as np
import torch

from .torch_tensors import TORCH_NAMES

DTYPES = {"f32": torch.float32, "c64": torch.complex64, "i64": torch.int64, "bool": torch.bool}
WIDER = {torch.float32: torch.float64, torch.complex64: torch.complex128}
VERDICTS = ("equal", "differs", "raises", "absent")
SEED = 42
"""torch's seed of operators that draw."""
OUTSIDE = {
    "internal": (
        "_", "hash_tensor", "jiterator_", "max_pool2d_with_indices_backward", "native_", "slice", "torch._",
        "torch.ops.",
    ),
    "masked": ("masked.",),
    "sparse": ("sparse.", "to_sparse"),
}  # fmt: skip
"""What the package leaves out, by the beginnings of names."""
DRAWN = (
    "bernoulli", "cauchy", "exponential", "geometric", "log_normal", "multinomial", "nn.functional.alpha_dropout",
    "nn.functional.dropout", "nn.functional.feature_alpha_dropout", "nn.functional.fractional_max_pool",
    "nn.functional.multi_head_attention_forward", "nn.functional.rrelu", "normal", "pca_lowrank", "rand", "svd_lowrank",
    "uniform",
)  # fmt: skip
"""Operators whose elements are random: dtypes and shapes are compared."""
UNSET = ("empty", "new_empty", "resize_", "resize_as_")
"""Operators whose elements are not set."""
WRONG_GRADIENTS = ("as_strided_scatter", "cholesky_inverse", "nn.LPPool1d", "nn.LPPool2d", "nn.LPPool3d")
"""Names whose gradients in torch are not those of finite differences, or NaN where those are 0."""
TIES = ("argsort", "kthvalue", "median", "mode", "nanmedian", "sort", "topk")
"""Operators that may return any index of equal elements."""
RTOL, ATOL = 1e-4, 1e-5
WORSE = 8
"""How much larger than torch's an error of f32 may be, where the two differ."""


@dataclasses.dataclass
class Outcome:
    """What one call gives.

    Attributes:
        verdict: one of `VERDICTS`.
        why: how the values differ, or the error.
    """

    name: str
    dtype: str
    verdict: str
    why: str = ""


def database(name: str) -> list[Any]:
    """A database of torch: op, module or optimizer."""
    if "expecttest" not in sys.modules:  # torch's tests derive a class of it, which its databases do not use
        try:
            importlib.import_module("expecttest")
        except ModuleNotFoundError:
            stand_in: Any = types.ModuleType("expecttest")
            stand_in.TestCase = unittest.TestCase
            sys.modules["expecttest"] = stand_in
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        folder = "torch.testing._internal"
        if name == "op":
            found = importlib.import_module(f"{folder}.common_methods_invocations").op_db
        elif name == "module":
            found = importlib.import_module(f"{folder}.common_modules").module_db
        else:
            found = importlib.import_module(f"{folder}.common_optimizers").optim_db
    return list(found)


def outside(name: str) -> str | None:
    """Why an operator is left out by the package, if it is."""
    for why, beginnings in OUTSIDE.items():
        if name.startswith("slice_") or (name.startswith("__") and why == "internal"):
            continue
        if name.startswith(beginnings):
            return why
    return None


def name_of_entry(entry: Any) -> str:
    """The name of an operator and of its variant, of a layer, or of an optimizer."""
    if hasattr(entry, "optim_cls"):
        return str(entry.optim_cls.__name__)
    variant = getattr(entry, "variant_test_name", "")
    return f"{entry.name}.{variant}" if variant else str(entry.name)


# -- conversion -------------------------------------------------------------------------------------------------------


def converted(item: Any, leaves: list[Any] | None = None) -> Any:
    """An argument of torch as ours; tensors that require gradients are added to `leaves`."""
    if isinstance(item, torch.Tensor):
        array = item.detach().resolve_conj().resolve_neg().contiguous().clone()
        found = cc.from_dlpack(array) if array.dtype is not torch.bool else cc.tensor(array.numpy())
        if isinstance(item, torch.nn.Parameter):
            found = cc.nn.Parameter(found)
        if item.requires_grad:
            found.requires_grad_()
            if leaves is not None:
                leaves.append(found)
        return found
    if isinstance(item, torch.dtype | torch.memory_format | torch.layout):
        return getattr(cc, str(item).removeprefix("torch."))
    if isinstance(item, torch.device):
        return str(item)
    if isinstance(item, torch.Size):
        return tuple(item)
    if isinstance(item, tuple) and hasattr(item, "_fields"):
        return type(item)(*(converted(each, leaves) for each in item))
    if isinstance(item, list | tuple):
        return type(item)(converted(each, leaves) for each in item)
    if isinstance(item, dict):
        return {key: converted(value, leaves) for key, value in item.items()}
    if isinstance(item, torch.nn.Module):
        return converted_module(item)
    if isinstance(item, types.FunctionType):
        return retargeted(item)
    if callable(item) and getattr(item, "__module__", None) in (
        "torch",
        "torch._C._nn",
        "torch._VariableFunctionsClass",
    ):
        return resolved(item.__name__)
    return item


def converted_module(module: torch.nn.Module) -> Any:
    """A layer as ours: one without settings, or one of a transformer, whose weights are taken later."""
    kind = getattr(cc.nn, type(module).__name__)
    if not hasattr(module, "self_attn"):
        return kind()
    attention: Any = module.self_attn
    settings = {"dim_feedforward": module.linear1.out_features, "dropout": module.dropout.p}
    settings |= {"batch_first": attention.batch_first, "norm_first": module.norm_first}
    settings["bias"] = module.linear1.bias is not None
    return kind(attention.embed_dim, attention.num_heads, activation=module.activation.__name__, **settings)


def doubled(item: Any) -> Any:
    """Tensors of f32 as f64, with gradients where they require them."""
    if isinstance(item, torch.Tensor) and item.dtype in WIDER:
        return item.detach().to(WIDER[item.dtype]).requires_grad_(item.requires_grad)
    if isinstance(item, list | tuple) and not isinstance(item, torch.Size) and not hasattr(item, "_fields"):
        return type(item)(map(doubled, item))
    if isinstance(item, dict):
        return {key: doubled(value) for key, value in item.items()}
    return WIDER.get(item, item) if isinstance(item, torch.dtype) else item


def gradients_wanted(item: Any) -> Iterator[torch.Tensor]:
    """torch's tensors that require gradients, in the order of `converted`."""
    if isinstance(item, torch.Tensor):
        if item.requires_grad:
            yield item
    elif isinstance(item, dict):
        for value in item.values():
            yield from gradients_wanted(value)
    elif isinstance(item, list | tuple):
        for value in item:
            yield from gradients_wanted(value)


# -- names ------------------------------------------------------------------------------------------------------------


class Absent(Exception):
    """A name that the package does not have."""


def resolved(*names: str) -> Callable[..., Any]:
    """Our function by the first of dotted names that there is, or a method of tensors."""
    for name in names:
        owner: Any = cc
        try:
            for part in name.split("."):
                owner = getattr(owner, part)
        except AttributeError:
            owner = vars(cc.Tensor).get(name)
        if not callable(owner):  # a dtype and a method of one name
            owner = vars(cc.Tensor).get(name)
        if callable(owner):
            return owner
    raise Absent(names[0])


def _seeded(compute: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    cc.manual_seed(SEED)
    return compute(*arguments, **options)


def retargeted(function: Callable[..., Any]) -> Any:
    """A Python function of torch's databases that calls ours where it calls torch."""
    if not isinstance(function, types.FunctionType):
        return function
    names = {**function.__globals__, "torch": cc, "F": cc.nn.functional, "wrapper_set_seed": _seeded}
    for name in function.__code__.co_names:
        if getattr(names.get(name), "__module__", "").startswith("torch.optim"):
            names[name] = getattr(cc.optim.lr_scheduler, name, None) or getattr(cc.optim, name)
    cells = function.__closure__
    if cells is not None:
        cells = tuple(types.CellType(converted(cell.cell_contents)) for cell in cells)
    made = types.FunctionType(function.__code__, names, function.__name__, function.__defaults__, cells)
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def ours_of(entry: Any) -> Callable[..., Any]:
    """Our function for an operator of the database."""
    compute = entry.op
    if isinstance(compute, types.FunctionType) and compute.__module__.startswith("torch.testing"):
        return retargeted(compute)  # type: ignore[no-any-return]
    aliases = [alias.name for alias in entry.aliases]
    return resolved(entry.name.removeprefix("torch."), *aliases)


# -- calls ------------------------------------------------------------------------------------------------------------


def flat(result: Any) -> list[Any]:
    """The items of nested tuples, lists and dictionaries."""
    if isinstance(result, dict):
        return [item for value in result.values() for item in flat(value)]
    shape = type(result).__name__ == "Size"
    if isinstance(result, list | tuple) and not shape:
        return [item for value in result for item in flat(value)]
    return [tuple(result) if shape else result]


def _weights(shape: tuple[int, ...], is_complex: bool) -> np.ndarray:
    """What results are multiplied with before their gradients are taken."""
    count = int(np.prod(shape, dtype=np.int64))
    real = np.cos(np.arange(count)) + 0.3
    return (real + 1j * np.sin(2 * np.arange(count)) if is_complex else real).reshape(shape)


def gradients_of_torch(results: list[Any], leaves: list[torch.Tensor]) -> list[Any] | None:
    """Gradients of weighted sums of the results; None without any in torch."""
    parts = [
        (each * torch.from_numpy(_weights(tuple(each.shape), each.is_complex())).to(each.dtype)).sum().real
        for each in results
        if isinstance(each, torch.Tensor) and each.requires_grad and (each.is_floating_point() or each.is_complex())
    ]
    if not parts or not leaves:
        return None
    total = functools.reduce(torch.add, [part.to(parts[0].dtype) for part in parts])
    try:
        return list(torch.autograd.grad(total, leaves, allow_unused=True))
    except (RuntimeError, NotImplementedError):
        return None


def our_gradients(results: list[Any], leaves: list[Any]) -> list[Any]:
    """As `gradients_of_torch`."""
    parts = [
        (each * cc.tensor(_weights(each.shape, each.is_complex())).to(each.dtype)).sum().real
        for each in results
        if isinstance(each, cc.Tensor) and each.requires_grad
    ]
    if not parts:
        return [None for _ in leaves]
    total = functools.reduce(cc.add, [part.to(parts[0].dtype) for part in parts])
    return list(cc.autograd.grad(total, leaves, allow_unused=True))


def array_of(item: Any) -> np.ndarray:
    """The elements of a tensor of either library."""
    if isinstance(item, torch.Tensor):
        item = item.float() if item.dtype == torch.bfloat16 else item
        return item.detach().resolve_conj().resolve_neg().numpy(force=True)
    return np.asarray(item.detach().numpy())


def name_of(dtype: Any) -> str:
    """A dtype by torch's name."""
    name = str(dtype).removeprefix("torch.")
    return {**TORCH_NAMES, "c64": "complex64", "c128": "complex128"}.get(name, name)


def different(theirs: Any, ours: Any, *, values: bool = True) -> str:
    """How our item differs from torch's; "" if it does not."""
    if isinstance(theirs, torch.Tensor):
        if not isinstance(ours, cc.Tensor):
            return f"a tensor is wanted, not {type(ours).__name__}"
        wanted, found = theirs.detach().cpu(), ours.detach()
        if name_of(wanted.dtype) != name_of(found.dtype):
            return f"dtype {found.dtype} in place of {wanted.dtype}"
        if tuple(wanted.shape) != tuple(found.shape):
            return f"shape {list(found.shape)} in place of {list(wanted.shape)}"
        return far(array_of(wanted), array_of(found)) if values else ""
    if isinstance(theirs, torch.dtype):
        return "" if name_of(theirs) == name_of(ours) else f"{ours} in place of {theirs}"
    if isinstance(theirs, float) and not isinstance(ours, bool):
        return far(np.asarray(theirs), np.asarray(ours)) if values else ""
    return "" if theirs == ours else f"{ours!r} in place of {theirs!r}"


def far(theirs: np.ndarray, ours: np.ndarray) -> str:
    """How far arrays are apart; "" within the tolerance."""
    if theirs.dtype.kind not in "cfV":
        wrong = theirs != ours
        return f"{int(wrong.sum())} of {wrong.size} differ" if wrong.any() else ""
    wide = np.complex128 if "c" in (theirs.dtype.kind, ours.dtype.kind) else np.float64
    a, b = theirs.astype(wide), ours.astype(wide)
    if a.shape != b.shape:
        return f"{b.shape} in place of {a.shape}"
    close = np.isclose(b, a, RTOL, ATOL, equal_nan=True)
    if close.all():
        return ""
    at = tuple(np.argwhere(~close)[0])
    return f"{int((~close).sum())} of {close.size} differ, {b[at]:.8g} in place of {a[at]:.8g}"


def is_f32(theirs: Any, exact: Any, ours: Any) -> bool:
    """Whether what differs is not farther from f64 than torch's f32 is, up to `WORSE`."""
    if not all(isinstance(item, torch.Tensor) for item in (theirs, exact)) or exact.shape != theirs.shape:
        return False
    if theirs.dtype not in WIDER or tuple(ours.shape) != tuple(theirs.shape):
        return False
    wide = np.complex128 if theirs.is_complex() else np.float64
    best, one, other = (array_of(item).astype(wide) for item in (exact, theirs, ours))
    with np.errstate(invalid="ignore", over="ignore"):
        same = (
            (best == other) | (np.isnan(best) & np.isnan(other)) | (one == other) | np.isclose(other, best, RTOL, ATOL)
        )
        bound = WORSE * np.abs(one - best) + RTOL * np.abs(best) + ATOL
        error = np.abs(other - best)
    return bool((same | (error <= bound)).all())


def compared(theirs: list[Any], ours: list[Any], exact: Callable[[], list[Any] | None], *, values: bool = True) -> str:
    """How our items differ from torch's, other than by the rounding of f32."""
    if len(theirs) != len(ours):
        return f"{len(ours)} results in place of {len(theirs)}"
    reasons = {
        index: why
        for index, (one, other) in enumerate(zip(theirs, ours, strict=True))
        if (why := different(one, other, values=values))
    }
    if not reasons:
        return ""
    best = exact() if all("differ" in why for why in reasons.values()) else None
    if best is not None and len(best) == len(theirs) and all(is_f32(theirs[at], best[at], ours[at]) for at in reasons):
        return ""
    index, why = next(iter(reasons.items()))
    return f"result {index}: {why}" if len(theirs) > 1 else why


def error_text(error: BaseException) -> str:
    """One line of an error."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:240]


def spread(cases: Sequence[Any], at_most: int | None) -> Sequence[Any]:
    """All cases, or `at_most` of them, spread."""
    return cases if at_most is None else cases[:: max(1, len(cases) // at_most)][:at_most]


# -- operators --------------------------------------------------------------------------------------------------------


def operator_calls(entry: Any, dtype: str) -> list[Any]:
    """The samples of an operator for a dtype."""
    wanted = DTYPES[dtype]
    if wanted not in entry.dtypes:
        return []
    torch.manual_seed(SEED)
    with_gradient = dtype in ("f32", "c64") and bool(entry.supports_autograd)
    return list(entry.sample_inputs("cpu", wanted, requires_grad=with_gradient))


def _call(compute: Callable[..., Any], process: Callable[[Any], Any], arguments: Any, options: Any) -> Any:
    torch.manual_seed(SEED)
    return process(compute(*arguments, **options))


def checked_call(entry: Any, sample: Any, dtype: str, own: Callable[..., Any] | None = None) -> Outcome | None:
    """One sample called by both; None where torch itself raises, or returns sparse tensors.

    Args:
        own: what is called in place of our function of the name.
    """
    name = name_of_entry(entry)
    process = sample.output_process_fn_grad
    given = (sample.input, *sample.args)
    leaves: list[Any] = []
    try:
        arguments, options = converted(given, leaves), converted(sample.kwargs, leaves)
    except (AttributeError, RuntimeError, cc.Error) as error:
        return Outcome(name, dtype, "absent" if outside(entry.name) else "raises", error_text(error))
    wanted = list(gradients_wanted((given, sample.kwargs)))
    theirs_given = _copied(given), _copied(sample.kwargs)
    wanted = list(gradients_wanted(theirs_given))
    in_place = entry.name.endswith("_") or entry.variant_test_name == "in_place"
    try:
        theirs = flat(_call(entry.op, process, *_apart(theirs_given, in_place)))
    except Exception:
        return None
    if any(isinstance(each, torch.Tensor) and each.layout is not torch.strided for each in theirs):
        return None
    try:
        compute = own or ours_of(entry)
        cc.manual_seed(SEED)
        ours = flat(retargeted(process)(compute(*_apart((arguments, options), in_place)[0], **options)))
        for each in ours:
            if isinstance(each, cc.Tensor):
                each.realize()
    except Absent:
        return Outcome(name, dtype, "absent")
    except AttributeError as error:
        absent = "has no attribute" in str(error) and error.__traceback__.tb_next.tb_next is None  # type: ignore[union-attr]
        return Outcome(name, dtype, "absent" if absent else "raises", error_text(error))
    except Exception as error:
        return Outcome(name, dtype, "raises", error_text(error))
    values = not entry.name.startswith((*DRAWN, *UNSET)) and not sample.kwargs.get("dropout_p")

    def again() -> tuple[Any, list[Any]]:
        exact_given = doubled(theirs_given)
        return flat(_call(entry.op, process, *_apart(exact_given, in_place))), list(gradients_wanted(exact_given))

    if entry.name in TIES and len(theirs) in (1, 2) and (len(theirs) == 1) == (entry.name == "argsort"):
        theirs, ours = _without_ties(sample, theirs, ours)
    why = compared(theirs, ours, lambda: _silent(lambda: again()[0]), values=values)
    if why:
        return Outcome(name, dtype, "differs", why)
    if not values or not wanted or entry.name in WRONG_GRADIENTS:
        return Outcome(name, dtype, "equal")
    expected = gradients_of_torch(theirs, wanted)
    if expected is None:
        return Outcome(name, dtype, "equal")
    try:
        found = our_gradients(ours, leaves)
    except Exception as error:
        return Outcome(name, dtype, "raises", f"gradient: {error_text(error)}")
    why = compared(*_zeroed(expected, found, wanted), lambda: _silent(lambda: gradients_of_torch(*again())))
    return Outcome(name, dtype, "differs", f"gradient: {why}") if why else Outcome(name, dtype, "equal")


def _without_ties(sample: Any, theirs: list[Any], ours: list[Any]) -> tuple[list[Any], list[Any]]:
    """Results with the elements at the indices in place of the indices."""
    given, dims = sample.input, [each for each in (*sample.args, sample.kwargs.get("dim")) if type(each) is int]
    axes = [dim for dim in dims if given.ndim and -given.ndim <= dim < given.ndim]
    keeps = theirs[-1].ndim == given.ndim
    if not given.ndim or not keeps:
        return (theirs[:1], ours[:1]) if len(theirs) == 2 and given.ndim else (theirs, ours)
    axis = axes[-1] if axes else -1
    places = torch.from_numpy(array_of(ours[-1]))
    same = bool((given.gather(axis, places) == given.gather(axis, theirs[-1])).all())
    return (theirs[:-1], ours[:-1]) if same else (theirs, ours)


def _zeroed(expected: list[Any], found: list[Any], wanted: list[torch.Tensor]) -> tuple[list[Any], list[Any]]:
    """Gradients, with zeros in place of None."""
    theirs = [torch.zeros_like(leaf) if grad is None else grad for grad, leaf in zip(expected, wanted, strict=True)]
    ours = [cc.tensor(np.zeros(leaf.shape, array_of(leaf).dtype)) if grad is None else grad
            for grad, leaf in zip(found, wanted, strict=True)]  # fmt: skip
    return theirs, ours


def _silent(compute: Callable[[], Any]) -> Any:
    try:
        return compute()
    except Exception:
        return None


def _copied(item: Any) -> Any:
    """Copies of torch's tensors."""
    if isinstance(item, torch.Tensor):
        return item.detach().clone().requires_grad_(item.requires_grad)
    if isinstance(item, tuple) and hasattr(item, "_fields"):
        return item
    if isinstance(item, list | tuple) and not isinstance(item, torch.Size):
        return type(item)(map(_copied, item))
    return {key: _copied(value) for key, value in item.items()} if isinstance(item, dict) else item


def _apart(call: tuple[Any, Any], in_place: bool) -> tuple[Any, Any]:
    """Arguments of a function that changes the first of them, which is no leaf then."""
    (first, *rest), options = call
    return (first.clone() if in_place and hasattr(first, "clone") else first, *rest), options


def check_operator(
    entry: Any, dtypes: tuple[str, ...] = tuple(DTYPES), at_most: int | None = None,
    compute: Callable[..., Any] | None = None,
) -> Iterator[Outcome]:  # fmt: skip
    """All samples of an operator, or `at_most` spread over them, in each dtype."""
    for dtype in dtypes:
        samples = operator_calls(entry, dtype)
        for sample in spread(samples, at_most):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                outcome = checked_call(entry, sample, dtype, compute)
            if outcome is not None:
                yield outcome


# -- layers -----------------------------------------------------------------------------------------------------------


def check_module(entry: Any, at_most: int | None = None) -> Iterator[Outcome]:
    """All configurations of a layer, in training and evaluation: results and gradients of inputs and parameters."""
    name = entry.name
    for training in (True, False):
        every = list(entry.module_inputs_func(entry, "cpu", torch.float32, True, training))
        for inputs in spread(every, at_most):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                outcome = _checked_layer(entry, inputs, training)
            if outcome is not None:
                yield Outcome(name, "f32", *outcome)


def _checked_layer(entry: Any, inputs: Any, training: bool) -> tuple[str, str] | None:
    build, call = inputs.constructor_input, inputs.forward_input
    if call is None:
        return None
    try:
        theirs_module = entry.module_cls(*build.args, **build.kwargs)
        theirs_module.train(training)
        exact_module = copy.deepcopy(theirs_module).double()
        given = _copied(tuple(call.args)), _copied(dict(call.kwargs))
        torch.manual_seed(SEED)
        theirs = flat(theirs_module(*given[0], **given[1]))
    except Exception:
        return None
    leaves: list[Any] = []
    try:
        kind = resolved(entry.name)
        module = kind(*converted(list(build.args)), **converted(dict(build.kwargs)))
        module.train(training)
        arguments, options = converted(tuple(call.args), leaves), converted(dict(call.kwargs), leaves)
        cc.manual_seed(SEED)
        if "Lazy" in entry.name:
            module(*arguments, **options)
        module.load_state_dict(_state(theirs_module))
        ours = flat(module(*arguments, **options))
        for each in ours:
            each.realize()
    except Absent:
        return "absent", ""
    except Exception as error:
        return "raises", error_text(error)
    values = "FractionalMaxPool" not in entry.name and not any("dropout" in str(key) for key in build.kwargs)

    def again() -> tuple[Any, list[Any]]:
        arguments, options = doubled(tuple(call.args)), doubled(dict(call.kwargs))
        for each, before in zip(exact_module.parameters(), theirs_module.parameters(), strict=True):
            each.requires_grad_(before.requires_grad)
        found = flat(exact_module(*arguments, **options))
        return found, [*gradients_wanted((arguments, options)), *exact_module.parameters()]

    why = compared(theirs, ours, lambda: _silent(lambda: again()[0]), values=values)
    if why:
        return "differs", why
    wanted = [*gradients_wanted(given), *theirs_module.parameters()]
    expected = gradients_of_torch(theirs, wanted)
    if expected is None or not values or entry.name in WRONG_GRADIENTS:
        return "equal", ""
    try:
        found = our_gradients(ours, [*leaves, *module.parameters()])
    except Exception as error:
        return "raises", f"gradient: {error_text(error)}"
    why = compared(*_zeroed(expected, found, wanted), lambda: _silent(lambda: gradients_of_torch(*again())))
    return ("differs", f"gradient: {why}") if why else ("equal", "")


def _state(module: torch.nn.Module) -> dict[str, Any]:
    return {name: cc.tensor(value.detach().numpy()) for name, value in module.state_dict().items()}


# -- optimizers -------------------------------------------------------------------------------------------------------

STEPS = 6
"""That are compared of each configuration."""


def check_optimizer(entry: Any, at_most: int | None = None) -> Iterator[Outcome]:
    """All configurations of an optimizer: parameters after some steps, the state of each handed to the other."""
    name = entry.optim_cls.__name__
    for inputs in spread(list(entry.optim_inputs_func("cpu")), at_most):
        options = {key: value for key, value in inputs.kwargs.items() if key not in ("foreach", "fused", "capturable")}
        for schedule in spread([None, *(entry.scheduler_inputs or ())], at_most):
            try:
                outcome = _checked_steps(entry, options, schedule)
                if outcome[0] == "differs":  # only f32 makes steps differ that are equal in f64
                    outcome = _checked_steps(entry, options, schedule, np.float64)
            except Absent:
                outcome = "absent", ""
            except Exception as error:
                outcome = "raises", error_text(error)
            yield Outcome(name, "f32", outcome[0], f"{inputs.desc}: {outcome[1]}" if outcome[1] else "")


def _checked_steps(entry: Any, options: dict[str, Any], schedule: Any, kind: Any = np.float32) -> tuple[str, str]:
    """Steps of a small regression by both; halfway each loads torch's state into a new optimizer."""
    rng = np.random.default_rng(SEED)
    x, y = (rng.standard_normal((8, n)).astype(kind) for n in (3, 2))
    start = rng.standard_normal((3, 2)).astype(kind)
    ours_class = resolved(f"optim.{entry.optim_cls.__name__}")
    theirs, ours = torch.tensor(start, requires_grad=True), cc.tensor(start, requires_grad=True)
    one = entry.optim_cls([theirs], **options)
    other = ours_class([ours], **converted(options))
    theirs_plans = [made(one) for made in schedule or ()]
    our_plans = [retargeted(made)(other) for made in schedule or ()]

    def loss_of(m: Any, w: Any, optimizer: Any) -> Callable[[], Any]:
        def closure() -> Any:
            optimizer.zero_grad()
            loss = ((m.tensor(x) @ w - m.tensor(y)) ** 2).mean() + (w**4).mean() * 0.1
            loss.backward()
            if m is torch and entry.optim_cls is torch.optim.SparseAdam:
                w.grad = w.grad.to_sparse()
            return loss

        return closure

    for step in range(STEPS):
        losses = one.step(loss_of(torch, theirs, one)), other.step(loss_of(cc, ours, other))
        for plans, loss in zip((theirs_plans, our_plans), losses, strict=True):
            for plan in plans:
                plan.step(*([float(loss)] if "Plateau" in type(plan).__name__ else []))
        why = far(array_of(theirs), array_of(ours))
        if why:
            return "differs", f"step {step}: {why}"
        if step == STEPS // 2 and schedule is None:
            again = ours_class([ours], **converted(options))
            again.load_state_dict(converted(one.state_dict()))
            other = again
    return "equal", ""

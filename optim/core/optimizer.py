"""Optimizer: parameter groups, state of each parameter, and a step that is one plan; with PyTorch's interface."""

from __future__ import annotations

import collections
import functools
import inspect
import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ...runtime.base.errors import UsageError
from ...runtime.tensor.dtype import F32, DType
from ...tensors.autograd.hooks import RemovableHandle, added
from ...tensors.complex import numbers
from ...tensors.core.expression import cast, leaf
from ...tensors.core.grad_mode import enable_grad, no_grad
from ...tensors.core.realize import realize
from ...tensors.core.tensor import Tensor
from ...tensors.core.trace import TRACE
from .saved_value import checked, count
from .state_dict import loaded, saved
from .state_hooks import StateHooks
from .step_numbers import Bucket, Numbers, plain

Group = dict[str, Any]
"""Options of parameters, and under ``params`` the parameters."""
UNCHECKED = frozenset({"params", "param_names"})
"""Entries of groups that are not options."""
MASTER = "master"
"""The state that holds the f32 value of a parameter of 16 bits."""


WITHOUT_EFFECT = frozenset({"foreach", "fused", "capturable"})
"""PyTorch's settings of how a step is computed; here it is one plan."""


def hooked(step: Callable[..., Any]) -> Callable[..., Any]:
    """A step that calls the optimizer's hooks."""

    @functools.wraps(step)
    def called(self: Any, *arguments: Any, **options: Any) -> Any:
        for hook in list(self.before_step):
            changed = hook(self, (self, *arguments), options)
            if changed is not None:
                (_, *arguments), options = changed
        result = step(self, *arguments, **options)
        for hook in list(self.after_step):
            hook(self, (self, *arguments), options)
        return result

    return called


class OptimizerClass(type):
    """Makes optimizers, without the settings that have no effect."""

    if not TYPE_CHECKING:  # type checkers would take any arguments

        def __call__(cls, *arguments: Any, **options: Any) -> Any:
            return super().__call__(*arguments, **{n: each for n, each in options.items() if n not in WITHOUT_EFFECT})

    @property
    def __signature__(cls) -> inspect.Signature:
        own = inspect.signature(cls.__init__)  # type: ignore[misc]
        return own.replace(parameters=list(own.parameters.values())[1:], return_annotation=inspect.Signature.empty)


class Optimizer(StateHooks, metaclass=OptimizerClass):
    """Base of optimizers: subclasses say how one parameter is updated.

    A parameter of 16-bit floats is updated in f32: its state has a `master` copy, from which the parameter is rounded.
    Inside of a function under `jit` the step becomes part of the function's plan. Learning rates and other options may
    change between steps; they are inputs of the plan.

    Args:
        params: tensors that require gradients, pairs of a name and a tensor, or dictionaries of ``params`` and options.
        defaults: options of groups that do not give them.

    Attributes:
        param_groups: the groups; changed options count from the next step on.
        state: tensors and counters by parameter; a parameter has state from its first step on.
        before_step, after_step: functions that `step` calls.

    Raises UsageError for parameters that are not leaf tensors requiring gradients, and for options out of range.
    """

    counters: ClassVar[Mapping[str, float]] = {"step": 0}
    """Numbers that the state of a parameter has, and their first values."""
    unsaved: ClassVar[frozenset[str]] = frozenset()
    """Counters that PyTorch's state does not have."""
    nonnegative: ClassVar[tuple[str, ...]] = ()
    """Options that must be at least 0, besides ``lr``, ``weight_decay`` and ``eps``."""
    takes_complex: ClassVar[bool] = True
    """Whether the update of each number does not depend on others, so that complex numbers are pairs of numbers."""
    zero_state: ClassVar[tuple[str, ...]] = ()
    """Names of the state tensors of a parameter's shape that begin at 0."""

    def __init__(self, params: Iterable[Any], defaults: Group) -> None:
        super().__init__()
        self.defaults = defaults
        self.state: dict[Tensor, dict[str, Any]] = collections.defaultdict(dict)
        self.param_groups: list[Group] = []
        self.before_step: list[Callable[..., Any]] = []
        self.after_step: list[Callable[..., Any]] = []
        if isinstance(params, Tensor):
            why = "an optimizer takes an iterable of tensors, not one tensor"
            raise UsageError("E-OPTIM-PARAMS", None, why, hint="Pass a list")
        given = list(params)
        if not given:
            raise UsageError("E-OPTIM-PARAMS", None, "the list of parameters is empty", hint="Pass model.parameters()")
        for group in given if isinstance(given[0], dict) else [{"params": given}]:
            self.add_param_group(group)

    def add_param_group(self, group: Group) -> None:
        """Add parameters with options of their own."""
        params = group["params"]
        params = [params] if isinstance(params, Tensor) else list(params)
        made = {**self.defaults, **group}
        if params and isinstance(params[0], tuple):
            made["param_names"] = [name for name, _ in params]
            params = [each for _, each in params]
        known = set(itertools.chain.from_iterable(param_group["params"] for param_group in self.param_groups))
        for param in params:
            self._check_parameter(param)
            if param.dtype.is_complex and not self.takes_complex:
                why = f"{type(self).__name__} does not update parameters of {param.dtype}"
                raise UsageError("E-OPTIM-PARAMS", None, why, hint="Give it to another optimizer")
            if param in known:
                raise UsageError("E-OPTIM-PARAMS", None, "a parameter is in the optimizer twice", hint="Remove one")
            known.add(param)
        made["params"] = params
        self.check(plain(made))
        self.param_groups.append(made)

    @staticmethod
    def _check_parameter(parameter: Any) -> None:
        if not isinstance(parameter, Tensor):
            why = f"a parameter is a tensor, not {type(parameter).__name__}"
            raise UsageError("E-OPTIM-PARAMS", None, why, hint="Pass model.parameters()")
        if not parameter.is_leaf:
            why = f"a parameter of shape {list(parameter.shape)} is computed from others"
            raise UsageError("E-OPTIM-PARAMS", None, why, hint="Pass leaf tensors")

    def check(self, group: Group) -> None:
        """Raise UsageError for options that the update rule does not take."""
        require(group, "lr", 0)
        if "weight_decay" in group:
            require(group, "weight_decay", 0)
        if "eps" in group and not isinstance(group["eps"], tuple):
            require(group, "eps", 0)
        for beta in group.get("betas", ()):
            require({"betas": beta}, "betas", 0, 1)
        for name in self.nonnegative:
            require(group, name, 0)

    def begin(self, value: Tensor, group: Group) -> dict[str, Tensor]:
        """The state tensors of a parameter before its first step; by default those of `zero_state`."""
        return {name: zeros(value) for name in self.zero_state}

    def advance(self, group: Group, state: dict[str, Any]) -> Mapping[str, Any]:
        """Advance the counters in the state of a parameter by a step; the numbers of this step, floats and booleans."""
        raise NotImplementedError

    def update(self, value: Tensor, grad: Tensor, state: dict[str, Tensor], group: Group, n: Numbers) -> Tensor:
        """The value of a parameter after a step.

        Args:
            value, grad: of one shape and dtype.
            state: new tensors are assigned.
            group: options; only booleans, words, and whether a number is 0, may decide what is computed.
            n: the numbers of the step as 0-d tensors.
        """
        raise NotImplementedError

    def __init_subclass__(cls, **settings: Any) -> None:
        super().__init_subclass__(**settings)
        if "step" in vars(cls):
            cls.step = hooked(vars(cls)["step"])  # type: ignore[method-assign]

    def register_step_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Have a function called before each step with the optimizer, the arguments and the options of `step`; it may
        return other ones."""
        return added(self.before_step, hook)

    def register_step_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Have a function called after each step with the optimizer, the arguments and the options of `step`."""
        return added(self.after_step, hook)

    @hooked
    @no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update all parameters that have gradients; the result of `closure`, which is called first with gradients
        recorded."""
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        changed: list[Tensor] = []
        for group in self.param_groups:
            having = [each for each in group["params"] if each.grad is not None]
            for each in having:
                if each not in self.state:
                    self.state[each] = self._begun(each, plain(group))
            for bucket, params in self._buckets(group, having):
                for each in params:
                    changed += self._update(each, group, bucket)
        if TRACE.changes is None:
            realize([each.expression for each in changed])
        else:
            shapes = self._structure()
            TRACE.changes.guards.append(lambda: self._structure() == shapes)
        return loss

    def _begun(self, parameter: Tensor, group: Group) -> dict[str, Any]:
        wide = computing_dtype(parameter)
        state: dict[str, Any] = dict(self.counters)
        if wide is not parameter.dtype:
            state[MASTER] = Tensor(leaf(parameter.array().astype(wide.as_numpy())))
        value = state.get(MASTER, parameter)
        parts = _apart(value)
        for name, each in self.begin(parts, group).items():
            state[name] = _joined(each, value) if each.shape == parts.shape else each
        return state

    def _buckets(self, group: Group, params: Iterable[Tensor]) -> Iterable[tuple[Bucket, list[Tensor]]]:
        """The parameters by their counters, which are advanced."""
        alike: dict[tuple[Any, ...], list[Tensor]] = {}
        for param in params:
            state = self.state[param]
            alike.setdefault(tuple([state[name] for name in self.counters]), []).append(param)
        for found in alike.values():
            yield Bucket(self.advance, group, [self.state[each] for each in found], tuple(self.counters)), found

    def _update(self, parameter: Tensor, group: Group, bucket: Bucket) -> list[Tensor]:
        """Give a parameter and its state their next values; the tensors that changed."""
        state = self.state[parameter]
        master = state.get(MASTER, parameter)
        tensors = {name: _apart(each) for name, each in state.items() if isinstance(each, Tensor) and name != MASTER}
        before = dict(tensors)
        grad = _apart(Tensor(cast(parameter.grad.expression, master.dtype)))  # type: ignore[union-attr]
        value = self.update(
            _apart(Tensor(master.expression)), -grad if group.get("maximize") else grad, tensors, group,
            bucket.numbers(master.dtype.to_real()),
        )  # fmt: skip
        value = _joined(value, master)
        changed = [parameter]
        for name, each in before.items():
            if tensors[name] is not each:
                held = state[name]
                changed.append(held.become(_joined(tensors[name], held)))
        if master is not parameter:
            changed.append(master.become(value))
        parameter.become(value)
        return changed

    def _structure(self) -> Any:
        """The settings that decide which operators a step consists of, besides gradients."""
        return [
            (len(group["params"]), [_kind(group[name]) for name in self.defaults if name != "lr"])
            for group in self.param_groups
        ]

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients of all parameters, or set them to 0."""
        for group in self.param_groups:
            for each in group["params"]:
                if set_to_none:
                    each.grad = None
                elif each.grad is not None:
                    each.grad = Tensor(leaf(np.zeros(each.shape, each.dtype.as_numpy())))

    def state_dict(self) -> dict[str, Any]:
        """State and options in PyTorch's layout: ``state`` by the number of the parameter, and ``param_groups`` with
        numbers in place of parameters. Counters are 0-d f32 tensors."""
        return saved(self.state, self.param_groups, self.unsaved)

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take state and options of `state_dict`, or of PyTorch's optimizer of the same name; tensors may be arrays.

        Raises UsageError for other groups, shapes and kinds of values, and takes nothing then.
        """
        groups, by_parameter = loaded(state_dict, self.param_groups)
        for number, (group, options) in enumerate(zip(self.param_groups, groups, strict=True)):
            for name in [option for option in options if option in group and option not in UNCHECKED]:
                options[name] = checked(f"{name} of group {number}", options[name], plain(group)[name])
            self.check(plain({**group, **options}))
        states = {each: self._fitting(each, group, given) for each, (group, given) in by_parameter.items()}
        for parameter, (state, values) in states.items():
            self.state[parameter] = state
            for name, value in values.items():
                held = state[name]
                if isinstance(held, Tensor):
                    held.become(Tensor(leaf(value)))  # plans know the tensor
                else:
                    state[name] = value
            self.loaded(state, by_parameter[parameter][1])
        for group, options in zip(self.param_groups, groups, strict=True):
            group.update(options)

    def _fitting(
        self, parameter: Tensor, group: Group, given: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """The state that a parameter has, or begins with, and what it becomes by a saved one."""
        state = self.state.get(parameter) or self._begun(parameter, plain(group))
        shape = list(parameter.shape)
        values: dict[str, Any] = {}
        for name, value in given.items():
            if name not in state:
                continue
            what, held = f"{name} of a parameter of shape {shape}", state[name]
            if isinstance(held, Tensor):
                values[name] = np.asarray(checked(what, value, held))
            elif isinstance(held, int):
                values[name] = count(what, value)
            else:
                values[name] = float(checked(what, value, 0.0))
        return state, values

    def loaded(self, state: dict[str, Any], given: Mapping[str, Any]) -> None:
        """Set counters that PyTorch's state does not have."""

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for number, group in enumerate(self.param_groups):
            lines += [f"Parameter Group {number}", *(f"    {n}: {group[n]}" for n in sorted(group) if n != "params")]
        return "\n".join([*lines, ")"])


def computing_dtype(parameter: Tensor) -> DType:
    """The dtype that a parameter is updated in: f32 for 16-bit floats."""
    return F32 if parameter.dtype.bits < 32 else parameter.dtype


def _apart(value: Tensor) -> Tensor:
    """Complex numbers as pairs of parts, which update rules take for two numbers; others as they are."""
    return numbers.view_as_real(value) if value.dtype.is_complex else value


def _joined(parts: Tensor, like: Tensor) -> Tensor:
    """The inverse of `_apart`."""
    return numbers.view_as_complex(parts) if like.dtype.is_complex else parts


def zeros(value: Tensor, shape: Iterable[int] | None = None, fill: float = 0) -> Tensor:
    """A state tensor of a parameter's dtype."""
    wanted = value.shape if shape is None else tuple(shape)
    return Tensor(leaf(np.full(wanted, fill, value.dtype.as_numpy())))


def options(arguments: Mapping[str, Any]) -> Group:
    """The options among the `locals()` of an update rule's `__init__`."""
    return {name: value for name, value in arguments.items() if name not in ("self", "params", "__class__")}


def require(group: Mapping[str, Any], name: str, low: float, below: float | None = None) -> None:
    """Raise UsageError unless an option is at least `low` and less than `below`."""
    value = group[name]
    if not (isinstance(value, int | float) and value >= low and (below is None or value < below)):
        wanted = f"at least {low}" + ("" if below is None else f" and less than {below}")
        raise UsageError("E-OPTIM-OPTION", None, f"{name} is {value!r}", expected=wanted)


def _kind(value: Any) -> Any:
    """The part of a value that decides the structure of an update: for numbers, whether they are 0."""
    if isinstance(value, tuple):
        return tuple(map(_kind, value))
    return value != 0 if isinstance(value, float) else value

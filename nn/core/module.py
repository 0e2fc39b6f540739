"""Module: a layer or a tree of layers, with PyTorch's interface: parameters, buffers, state dicts, modes and hooks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from ...runtime.base.errors import UsageError, UsageKeyError, UsageTypeError
from ...tensors import namespace as namespace  # tensors get their operations
from ...tensors.autograd.hooks import RemovableHandle, added
from ...tensors.core.conversion import array_of
from ...tensors.core.device import TYPES
from ...tensors.core.expression import leaf
from ...tensors.core.grad_mode import no_grad
from ...tensors.core.promotion import named
from ...tensors.core.tensor import Tensor
from ...tensors.core.trace import TRACE
from ...tensors.operations.creation import check_device
from .hooks import ForwardHook, Hook, call_with_hooks
from .parameter import Buffer, Parameter

M = TypeVar("M", bound="Module")
MAX_LISTED = 5
"""Names that an error lists."""


class LoadedKeys(NamedTuple):
    """Keys that `load_state_dict` did not load."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return f"LoadedKeys(missing_keys={self.missing_keys}, unexpected_keys={self.unexpected_keys})"


class Module:
    """Base of layers and models. Attributes that are a `Parameter`, a `Buffer` or a `Module` are registered by name.

    Subclasses call ``super().__init__()`` first, assign parameters and layers, and define `forward`.

    Attributes:
        training: whether the module is in training mode; see `train`.
    """

    training: bool
    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    _modules: dict[str, Module | None]
    _transient: set[str]
    _pre_hooks: list[ForwardHook]
    _hooks: list[ForwardHook]
    _backward_hooks: list[Hook]

    def __init__(self) -> None:
        for name, value in (
            ("training", True),
            ("_parameters", {}),
            ("_buffers", {}),
            ("_transient", set()),
            ("_modules", {}),
            ("_pre_hooks", []),
            ("_hooks", []),
            ("_backward_hooks", []),
        ):
            object.__setattr__(self, name, value)

    def forward(self, *arguments: Any, **options: Any) -> Any:
        """Compute the module's output; defined by subclasses."""
        raise NotImplementedError(f"{type(self).__name__} does not define forward()")

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        if TRACE.changes is not None:
            TRACE.changes.settings[self, "training"] = self.training
        if self._pre_hooks or self._hooks or self._backward_hooks:
            return call_with_hooks(self, arguments, options)
        try:
            return self.forward(*arguments, **options)
        except AttributeError as error:
            if error.name != "expression" or isinstance(error.obj, Tensor):
                raise
            why = f"{type(self).__name__} was called with {type(error.obj).__name__} in place of a tensor"
            raise UsageTypeError("E-NN-INPUT", None, why, hint="Make one with tensor() or from_numpy()") from error

    def register_forward_pre_hook(
        self, hook: Hook, *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Call ``hook(module, arguments)`` before `forward`; what it returns replaces the arguments.

        Args:
            prepend: call it before the hooks that there are.
            with_kwargs: call ``hook(module, arguments, options)``, which returns both or None.
        """
        return added(self._pre_hooks, ForwardHook(hook, with_kwargs), prepend)

    def register_forward_hook(self, hook: Hook, *, prepend: bool = False, with_kwargs: bool = False) -> RemovableHandle:
        """Call ``hook(module, arguments, result)`` after `forward`; what it returns replaces the result.

        Args:
            prepend: call it before the hooks that there are.
            with_kwargs: call ``hook(module, arguments, options, result)``.
        """
        return added(self._hooks, ForwardHook(hook, with_kwargs), prepend)

    def register_full_backward_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Call ``hook(module, gradients of the arguments, gradients of the result)``, tuples, in `backward`.

        None stands for arguments that have no gradients. A gradient or tuple that the hook returns replaces
        the arguments' gradients.
        """
        return added(self._backward_hooks, hook, prepend)

    def compile(self, *arguments: Any, **options: Any) -> None:
        """PyTorch's request to compile the module: what it computes becomes compiled plans as it is."""

    def __setattr__(self, name: str, value: Any) -> None:
        if "_modules" not in self.__dict__:
            if isinstance(value, Parameter | Module):
                why = f"{type(self).__name__} assigns {name} before it calls super().__init__()"
                raise UsageError("E-NN-MODULE", None, why, hint="Call super().__init__() first")
            object.__setattr__(self, name, value)
            return
        tables: tuple[tuple[type, dict[str, Any]], ...] = (
            (Parameter, self._parameters),
            (Module, self._modules),
            (Buffer, self._buffers),
        )
        for kind, table in tables:
            if isinstance(value, kind):
                self._forget(name, table)
                table[name] = value
                if isinstance(value, Buffer) and not value.persistent:
                    self._transient.add(name)
                return
        for _, table in tables:
            if name in table:
                if value is not None and not (table is self._buffers and isinstance(value, Tensor)):
                    why = f"{name} of {type(self).__name__} cannot become {type(value).__name__}"
                    raise UsageError("E-NN-MODULE", None, why, hint="Assign a Parameter, a Module or None")
                table[name] = value
                return
        object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        for table in ("_parameters", "_buffers", "_modules"):
            found = self.__dict__.get(table)
            if found is not None and name in found:
                return found[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __delattr__(self, name: str) -> None:
        if not self._forget(name):
            object.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._parameters, *self._buffers, *self._modules})

    def _forget(self, name: str, kept: dict[str, Any] | None = None) -> bool:
        """Take a name out of every table but one; whether it was there."""
        self._transient.discard(name)
        tables = (self.__dict__, self._parameters, self._buffers, self._modules)
        found = [table.pop(name, self) is not self for table in tables if table is not kept]
        return any(found)

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Add a parameter; None stands for one that the module does not have."""
        self._require_new(name, self._parameters)
        self._forget(name, self._parameters)
        self._parameters[name] = param

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Add a tensor that is not trained; it is in the state dict if it is `persistent`."""
        self._require_new(name, self._buffers)
        self._forget(name, self._buffers)
        self._buffers[name] = tensor
        if not persistent:
            self._transient.add(name)

    def _require_new(self, name: str, table: Mapping[str, Any]) -> None:
        """Raise UsageKeyError for a name with a dot, or that of another attribute."""
        others = (each for each in (vars(self), self._parameters, self._buffers, self._modules) if each is not table)
        if "." in name or any(name in each for each in others):
            why = f"{name!r} cannot name a part of {type(self).__name__}"
            reason = "names have no dots" if "." in name else "the attribute exists already"
            raise UsageKeyError("E-NN-NAME", None, f"{why}: {reason}")

    def register_module(self, name: str, module: Module | None) -> None:
        """Add a module."""
        if module is not None and not isinstance(module, Module):
            why = f"{name} of {type(self).__name__} is {type(module).__name__}, not a module"
            raise UsageError("E-NN-MODULE", None, why, hint="Pass layers, such as cc.nn.ReLU()")
        self._require_new(name, self._modules)
        self._forget(name, self._modules)
        self._modules[name] = module

    add_module = register_module

    def named_modules(self, memo: set[Module] | None = None, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """This module under the name `prefix`, and all below it, each once."""
        seen = set() if memo is None else memo
        if self not in seen:
            seen.add(self)
            yield prefix, self
            for name, module in self._modules.items():
                if module is not None:
                    yield from module.named_modules(seen, f"{prefix}.{name}" if prefix else name)

    def modules(self) -> Iterator[Module]:
        """This module and all below it, each once."""
        return (module for _, module in self.named_modules())

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """The modules that are attributes of this one."""
        return ((name, module) for name, module in self._modules.items() if module is not None)

    def children(self) -> Iterator[Module]:
        """The modules that are attributes of this one."""
        return (module for _, module in self.named_children())

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """Parameters by dotted names; of shared ones the first name, or all."""
        return self._members("_parameters", prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """The parameters, each once."""
        return (parameter for _, parameter in self.named_parameters(recurse=recurse))

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Buffers by dotted names."""
        return self._members("_buffers", prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """The buffers, each once."""
        return (buffer for _, buffer in self.named_buffers(recurse=recurse))

    def _members(self, table: str, prefix: str, recurse: bool, once: bool) -> Iterator[tuple[str, Any]]:
        seen = set()
        for path, module in self.named_modules(prefix=prefix) if recurse else [(prefix, self)]:
            for name, item in getattr(module, table).items():
                if item is not None and item not in seen:
                    if once:
                        seen.add(item)
                    yield f"{path}.{name}" if path else name, item

    def get_submodule(self, target: str) -> Module:
        """The module of a dotted name.

        Raises UsageError if it does not exist.
        """
        found: Module | None = self
        for name in target.split(".") if target else ():
            found = None if found is None else found._modules.get(name)
        if found is None:
            raise UsageError("E-NN-NAME", None, f"{type(self).__name__} has no module {target!r}")
        return found

    def get_parameter(self, target: str) -> Parameter:
        """The parameter of a dotted name."""
        path, _, name = target.rpartition(".")
        found = self.get_submodule(path)._parameters.get(name)
        if found is None:
            raise UsageError("E-NN-NAME", None, f"{type(self).__name__} has no parameter {target!r}")
        return found

    def get_buffer(self, target: str) -> Tensor:
        """The buffer of a dotted name."""
        path, _, name = target.rpartition(".")
        found = self.get_submodule(path)._buffers.get(name)
        if found is None:
            raise UsageError("E-NN-NAME", None, f"{type(self).__name__} has no buffer {target!r}")
        return found

    def set_submodule(self, target: str, module: Module) -> None:
        """Replace the module of a dotted name, or add one."""
        path, _, name = target.rpartition(".")
        self.get_submodule(path).register_module(name, module)

    def train(self: M, mode: bool = True) -> M:
        """Training mode, in which dropout and batch statistics are at work, or evaluation mode."""
        for module in self.modules():
            module.training = mode
        return self

    def eval(self: M) -> M:
        """Evaluation mode."""
        return self.train(False)

    def requires_grad_(self: M, requires_grad: bool = True) -> M:
        """Train the parameters, or freeze them."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients of the parameters, or set them to zero."""
        for parameter in self.parameters():
            if parameter.grad is not None:
                parameter.grad = None if set_to_none else parameter.grad.detach().zero_()

    def apply(self: M, fn: Callable[[Module], Any]) -> M:
        """Call a function with each module below, then with this one."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def to(self: M, *targets: Any, dtype: Any = None, device: Any = None, **options: Any) -> M:
        """Convert float parameters and buffers to a dtype, in place; `targets` are a dtype, a device, or both.

        Args:
            options: PyTorch's ``non_blocking`` and ``memory_format``, without effect.
        """
        for target in targets:
            if target is None:
                continue
            if isinstance(target, str) and target.partition(":")[0] in TYPES:
                device = target
            else:
                dtype = target.dtype if isinstance(target, Tensor) else target
        check_device(device)
        if dtype is None:
            return self
        wanted = named(dtype)
        if wanted.kind != "float":
            why = f"parameters are converted to float dtypes, not to {wanted}"
            raise UsageError("E-TENSOR-DTYPE", None, why, hint="Use float32, float64, float16 or bfloat16")
        for tensor in (*self.parameters(), *self.buffers()):
            if tensor.dtype.kind == "float" and tensor.dtype is not wanted:
                tensor.data = tensor.data.to(wanted)
                if tensor.grad is not None:
                    tensor.grad = tensor.grad.to(wanted)
        return self

    def float(self: M) -> M:
        """Parameters and buffers as f32."""
        return self.to("f32")

    def double(self: M) -> M:
        """Parameters and buffers as f64."""
        return self.to("f64")

    def half(self: M) -> M:
        """Parameters and buffers as f16."""
        return self.to("f16")

    def bfloat16(self: M) -> M:
        """Parameters and buffers as bf16."""
        return self.to("bf16")

    def cpu(self: M) -> M:
        """The module, which is on the CPU."""
        return self

    def state_dict(self, *, prefix: str = "", keep_vars: bool = False) -> dict[str, Tensor]:
        """Parameters and persistent buffers by name, as they are now; with `keep_vars` themselves."""
        found: dict[str, Tensor] = {}
        for path, module in self._starts(prefix):
            for name, item in {**module._parameters, **module._buffers}.items():
                if item is not None and name not in module._transient:
                    found[path + name] = item if keep_vars else item.detach()
        return found

    def _starts(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """All modules by the starts of their parameters' names, shared ones under each name."""
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                yield from module._starts(f"{prefix}{name}.")

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> LoadedKeys:
        """Take the values of parameters and persistent buffers by name.

        Args:
            state_dict: tensors of this package, of torch and of anything that speaks DLPack, or NumPy arrays.
            strict: refuse missing and unexpected names.
            assign: keep the dtypes of `state_dict` instead of converting to those of the module.

        Raises UsageError for names and shapes that do not fit; nothing is loaded then.
        """
        own = self.state_dict(keep_vars=True)
        missing = [name for name in own if name not in state_dict]
        unexpected = [name for name in state_dict if name not in own]
        if strict and (missing or unexpected):
            parts = [
                f"{what} {_listed(names)}" for what, names in (("lacks", missing), ("has also", unexpected)) if names
            ]
            why = f"the state dict for {type(self).__name__} {' and '.join(parts)}"
            raise UsageError("E-NN-STATE", None, why, hint="Rename the tensors, or pass strict=False")
        arrays = {name: array_of(state_dict[name]) for name in own if name in state_dict}
        for name, array in arrays.items():
            if array.shape != own[name].shape:
                why = f"{name} of {type(self).__name__} has another shape in the state dict"
                raise UsageError("E-NN-STATE", None, why, expected=list(own[name].shape), found=list(array.shape))
        with no_grad():
            for name, array in arrays.items():
                value = Tensor(leaf(array.copy()))
                if assign:
                    own[name].data = value
                else:
                    own[name].become(value)
        return LoadedKeys(missing, unexpected)

    def extra_repr(self) -> str:
        """Settings in the text of the module."""
        return ""

    def __repr__(self) -> str:
        settings = self.extra_repr()
        lines = settings.split("\n") if settings else []
        below = [f"({name}): {_indented(repr(module))}" for name, module in self._modules.items()]
        if not below and len(lines) < 2:
            return f"{type(self).__name__}({settings})"
        return f"{type(self).__name__}(\n  " + "\n  ".join([*lines, *below]) + "\n)"


class LayerVariants(Module):
    """Base of layers that exist for several numbers of dims; a class states what distinguishes it from the others in
    its first line, ``class Conv2d(_ConvNd, dims=2)``."""

    def __init_subclass__(cls, **settings: Any) -> None:
        super().__init_subclass__()
        bases = cls.__mro__[1:]
        for name, value in settings.items():
            if not any(name in vars(base) or name in vars(base).get("__annotations__", {}) for base in bases):
                raise TypeError(f"{cls.__name__}: no base class has an attribute {name!r}")
            setattr(cls, name, value)


def _indented(text: str) -> str:
    return text.replace("\n", "\n  ")


def _listed(names: list[str]) -> str:
    more = len(names) - MAX_LISTED
    return ", ".join(names[:MAX_LISTED]) + (f" and {more} more" if more > 0 else "")

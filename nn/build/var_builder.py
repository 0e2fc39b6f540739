"""VarBuilder: the tensors of a file or a dictionary by names with prefixes; VarMap: variables that are made when they
are first asked for."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ...runtime.base.units import counted
from ...runtime.base.errors import FormatError, UsageError
from ...runtime.base.nearest_name import nearest
from ...runtime.tensor.dtype import DType
from ...tensors.core.conversion import array_of
from ...tensors.core.expression import leaf
from ...tensors.core.grad_mode import no_grad
from ...tensors.core.tensor import Tensor
from ...tensors.core.promotion import DEFAULT, named
from ...tensors.operations.creation import check_device, zeros
from ..core.parameter import Parameter
from ..core.provided import PROVIDED

__all__ = ["VarBuilder", "VarMap"]
Init = Callable[[Tensor], Any]


class VarMap(Mapping[str, Parameter]):
    """Variables by name, which a `VarBuilder.from_varmap` makes when a layer asks for them."""

    def __init__(self) -> None:
        self._variables: dict[str, Parameter] = {}

    def __getitem__(self, name: str) -> Parameter:
        return self._variables[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._variables)

    def __len__(self) -> int:
        return len(self._variables)

    def all_vars(self) -> list[Parameter]:
        """The variables."""
        return list(self._variables.values())

    def add(self, name: str, variable: Parameter) -> Parameter:
        """Keep a variable under a name."""
        self._variables[name] = variable
        return variable

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all variables to a file, of safetensors or the format that the suffix says."""
        PROVIDED.get("write_tensors")(self._variables, path)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Take the values of all variables from a file.

        Raises FormatError if the file lacks one, or has it in another shape; nothing is loaded then.
        """
        source = VarBuilder.from_file(path)
        found = {name: source.get(each.shape, name) for name, each in self._variables.items()}
        with no_grad():
            for name, value in found.items():
                self._variables[name].become(value)


class VarBuilder:
    """Tensors by name, with a prefix that `pp` extends.

    Attributes:
        dtype: of float tensors that `get` returns.
        prefix: in front of names.
    """

    def __init__(
        self, tensors: Mapping[str, Any], dtype: Any = None, *, prefix: str = "",
        file: str | os.PathLike[str] | None = None, varmap: VarMap | None = None,
        rename: Callable[[str], str] | None = None,
    ) -> None:  # fmt: skip
        self.dtype: DType = DEFAULT.dtype if dtype is None else named(dtype)
        self.prefix = prefix
        self._tensors = tensors
        self._file = file
        self._varmap = varmap
        self._rename = rename

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], dtype: Any = None, device: Any = None) -> VarBuilder:
        """The tensors of a model file, shard index, directory or hf:// repository of any format.

        Elements are read when a layer asks for them; block types are dequantized then.
        """
        check_device(device)
        return cls(PROVIDED.get("read_weights")(path), dtype, file=path)

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Any], dtype: Any = None, device: Any = None) -> VarBuilder:
        """Tensors, torch's, or NumPy arrays by name."""
        check_device(device)
        return cls(tensors, dtype)

    @classmethod
    def from_varmap(cls, varmap: VarMap, dtype: Any = None, device: Any = None) -> VarBuilder:
        """Variables that are made, with their initial values, when a layer asks for them."""
        check_device(device)
        return cls(varmap, dtype, varmap=varmap)

    @classmethod
    def zeros(cls, dtype: Any = None, device: Any = None) -> VarBuilder:
        """Zeros under every name."""
        check_device(device)
        return cls(_Everything(), dtype)

    @property
    def draws(self) -> bool:
        """Whether layers need initial values."""
        return self._varmap is not None

    def _with(self, **changes: Any) -> VarBuilder:
        options: dict[str, Any] = {
            "dtype": self.dtype,
            "prefix": self.prefix,
            "file": self._file,
            "varmap": self._varmap,
            "rename": self._rename,
        }
        return VarBuilder(self._tensors, **{**options, **changes})

    def pp(self, name: Any) -> VarBuilder:
        """The tensors below a name: a word, a number, or several with dots."""
        return self._with(prefix=self.path(str(name)))

    push_prefix = pp
    __truediv__ = pp

    def root(self) -> VarBuilder:
        """The tensors without a prefix."""
        return self._with(prefix="")

    def set_prefix(self, prefix: str) -> VarBuilder:
        """The tensors below another prefix."""
        return self._with(prefix=prefix)

    def to_dtype(self, dtype: Any) -> VarBuilder:
        """The same tensors in another dtype."""
        return self._with(dtype=dtype)

    def rename(self, rename: Callable[[str], str]) -> VarBuilder:
        """Look tensors up under the name that a function makes of the whole name."""
        return self._with(rename=rename)

    rename_f = rename

    def path(self, name: str) -> str:
        """A name with the prefix."""
        return f"{self.prefix}.{name}" if self.prefix and name else self.prefix or name

    def contains_tensor(self, name: str) -> bool:
        """Whether there is such a tensor below the prefix."""
        return self._name(name) in self._tensors

    def _name(self, name: str) -> str:
        whole = self.path(name)
        return whole if self._rename is None else self._rename(whole)

    def get(self, shape: int | Sequence[int], name: str) -> Tensor:
        """A tensor, whose shape is checked; floats in `dtype`.

        Raises FormatError if a file lacks it or has it in another shape, and UsageError for dictionaries.
        """
        return self.get_with_hints(shape, name, None)

    def get_with_hints(self, shape: int | Sequence[int], name: str, init: Init | None) -> Tensor:
        """`get`; of a `VarMap` a new variable, to which `init` gives its values, if it does not have one."""
        wanted = (shape,) if isinstance(shape, int) else tuple(shape)
        whole = self._name(name)
        if self._varmap is not None:
            if whole not in self._varmap:
                made = self._varmap.add(whole, Parameter(zeros(wanted, dtype=self.dtype)))
                if init is not None:
                    init(made)
            return self._checked(self._varmap[whole], wanted, whole)
        if isinstance(self._tensors, _Everything):
            return zeros(wanted, dtype=self.dtype)
        return self._checked(self.get_unchecked(name), wanted, whole)

    def get_unchecked(self, name: str) -> Tensor:
        """A tensor of whatever shape it has."""
        whole = self._name(name)
        if whole not in self._tensors:
            meant = nearest(whole, self._tensors)
            hint = f"Did you mean {meant!r}?" if meant else "Print the names of the tensors"
            raise self._error("E-NN-NAME", f"there is no tensor {whole!r}", hint=hint)
        found = self._tensors[whole]
        if isinstance(found, Tensor):
            return found if found.dtype.kind != "float" else found.to(self.dtype)
        tensor = Tensor(leaf(array_of(found)))
        return tensor if tensor.dtype.kind != "float" else tensor.to(self.dtype)

    def _checked(self, found: Tensor, shape: tuple[int, ...], name: str) -> Tensor:
        if found.shape != shape:
            why = f"the tensor {name!r} has another shape"
            raise self._error("E-NN-SHAPE", why, expected=list(shape), found=list(found.shape))
        return found

    def _error(self, code: str, why: str, **facts: Any) -> UsageError | FormatError:
        if self._file is None:
            return UsageError(code, None, why, **facts)
        return FormatError(code, self._file, why, **{"hint": "The model and the file are not of one kind", **facts})

    def __repr__(self) -> str:
        return f"VarBuilder(prefix={self.prefix!r}, dtype={self.dtype}, {counted(len(self._tensors), 'tensor')})"


class _Everything(Mapping[str, Any]):
    """A tensor under every name, of no shape of its own."""

    def __contains__(self, name: object) -> bool:
        return True

    def __getitem__(self, name: str) -> Any:
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0

"""Architectures as tables: names of each hyper-parameter and weight in each kind of file."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

from ...runtime.base.errors import UsageError
from ...runtime.contract.architecture import GGUF, HF, SAME, Architecture, Config, Key, ModuleNames, Row, Weight
from ...runtime.contract.composition import whole
from ...runtime.contract.naming import CONVENTIONS, modules_of
from ...runtime.plugin import discovery


def families() -> Iterator[tuple[str, Architecture]]:
    """Pairs of a module's path, such as ``models/language/llama.py``, and an architecture that it defines."""
    found = discovery.ARCHITECTURES
    for module, family in zip(found.modules(), found.all(), strict=True):
        yield from ((f"{module.replace('.', '/')}.py", whole(architecture)) for architecture in family)


def named(name: str) -> tuple[str, Architecture] | None:
    """The architecture of that name: ours, a `model_type` of config.json, or a ``general.architecture`` of GGUF
    files."""
    known = list(families())
    for names in (lambda each: (each.name,), lambda each: each.model_types, lambda each: each.gguf):
        found = next(((family, each) for family, each in known if name in names(each)), None)
        if found is not None:
            return found
    return None


def unknown(name: str) -> UsageError:
    """The error for an unknown name."""
    known = {
        each
        for _, architecture in families()
        for each in (architecture.name, *architecture.model_types, *architecture.gguf)
    }
    near = difflib.get_close_matches(name.lower(), sorted(known), 3, 0.5)
    hint = f"The nearest: {', '.join(near)}" if near else "candle-convert models list shows what is known"
    return UsageError("E-ARCH-NAME", None, f"unknown architecture {name!r}, and no such file", hint=hint)


class _Asked(Mapping[str, Any]):
    """An empty configuration that notes which keys it is asked for."""

    def __init__(self) -> None:
        self.keys_asked: list[str] = []

    def __getitem__(self, key: str) -> Any:
        self.keys_asked.append(key)
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def parameters(architecture: Architecture) -> list[dict[str, Any]]:
    """Each parameter: our name, its keys in config.json and in GGUF files (without ``ARCH.``), and whether they have to
    have it."""
    asked = {names: _keys(architecture, names) for names in (HF, GGUF)}
    return [
        {"name": row.name, "hf": asked[HF][row.name][0], "gguf": asked[GGUF][row.name][0],
         "required": any(rows[row.name][1] for rows in asked.values())}
        for row in architecture.keys
    ]  # fmt: skip


def _keys(architecture: Architecture, names: str) -> dict[str, tuple[list[str], bool]]:
    """The keys that each row reads, and whether one of them has to be there."""
    config = Config({"names": names, "path": None})
    found = {}
    for row in architecture.keys:
        source, needed = _Asked(), False
        try:
            config.values[row.name] = row.read(names, source, config)
        except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError) as error:
            needed = isinstance(error, KeyError)
            config.values[row.name] = 1
        found[row.name] = (_spelled(row, names, source.keys_asked), needed)
    return found


def _spelled(row: Row, names: str, asked: list[str]) -> list[str]:
    return list(row.keys(names)) if isinstance(row, Key) else list(dict.fromkeys(asked))


def weights(architecture: Architecture) -> list[dict[str, Any]]:
    """Each row of weights: our name, its names and layouts in files of both kinds, its shape, and whether all models
    and layers have it. Of image models each module, whose shapes follow from the files."""
    return [*map(_module, modules_of(architecture, HF, ()))] + [
        {
            "name": row.name,
            "hf": _names(row, HF),
            "gguf": _names(row, GGUF),
            "shape": None if row.shape is None else list(row.shape),
            "optional": row.optional,
            "some_layers": row.when is not None,
            "layouts": _layouts(row),
        }
        for row in architecture.weights
    ]


def _module(module: ModuleNames) -> dict[str, Any]:
    own = (module.name,)
    others = {names: list(module.names(names)) for names in CONVENTIONS if module.names(names) != own}
    return {
        "name": module.name,
        "hf": others.pop(HF, [module.name]),
        "gguf": [module.name],
        "shape": None,
        "optional": True,
        "some_layers": False,
        "layouts": others,
    }


def _names(row: Weight, names: str) -> list[str]:
    return [" + ".join(way.names) for way in row.stored(names)]


def _layouts(row: Weight) -> dict[str, list[str]]:
    """How files arrange the values differently from us, by the kind of file."""
    found = {
        names: [type(way.layout).__name__.lower() for way in row.stored(names) if way.layout is not SAME]
        for names in (HF, GGUF)
    }
    return {names: kinds for names, kinds in found.items() if kinds}


def plain(value: Any) -> Any:
    """A parameter's value as JSON has it."""
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    value = value.item() if hasattr(value, "item") else value
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)

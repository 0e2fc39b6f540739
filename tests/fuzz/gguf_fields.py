"""GGUF files as lists of fields that can be changed one by one, and what they are as bytes."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import numpy as np
from candle_convert.runtime.tensor.stored_tensor import StoredTensor
from candle_convert.tests.builders.gguf_files import FORMS, NAMES, Maker
from candle_convert.tests.fuzz.values import WORDS, mutated

LOWEST, HIGHEST = {"u": 0, "i": -1}, {"u": 1, "i": 1}
KINDS = {np.dtype(form): name for name, form in FORMS.items() if name != "bool"}
NUMERIC = tuple(FORMS)


@dataclass
class Field:
    """One key: its type, or that of its elements."""

    key: str
    kind: str
    value: Any


@dataclass
class Info:
    """One tensor: lengths fastest first, number of its type, offset in the data."""

    name: str
    dims: list[int]
    kind: int
    offset: int


def fields(said: dict[str, Any]) -> list[Field]:
    """Metadata as fields."""
    found = []
    for key, value in said.items():
        if isinstance(value, np.ndarray):
            found.append(Field(key, "bool" if value.dtype == bool else KINDS[value.dtype], value.tolist()))
        elif isinstance(value, np.generic):
            found.append(Field(key, KINDS[value.dtype], value.item()))
        else:
            found.append(Field(key, "bool" if isinstance(value, bool) else "string", value))
    return found


def infos(weights: dict[str, StoredTensor]) -> tuple[list[Info], bytes]:
    """Tensors, and their data one behind the other."""
    found, data = [], b""
    for name, tensor in weights.items():
        found.append(Info(name, list(tensor.shape[::-1]), 0, len(data)))
        content = bytes(tensor.storage.read(0, tensor.nbytes))
        data += content + bytes(-len(content) % 32)
    return found, data


def encoded(pairs: list[Field], tensors: list[Info], data: bytes) -> bytes:
    """The file."""
    make = Maker()
    return make.file(
        [_pair(make, each) for each in pairs],
        [
            make.info(
                each.name,
                [_bounded(length, "u64") for length in each.dims],
                each.kind & 0xFFFFFFFF,
                _bounded(each.offset, "u64"),
            )
            for each in tensors
        ],
        data,
    )


def _pair(make: Maker, field: Field) -> bytes:
    if isinstance(field.value, list):
        return make.array(field.key, field.kind, [_fitted(item, field.kind) for item in field.value])
    return make.pair(field.key, field.kind, _fitted(field.value, field.kind))


def _fitted(value: Any, kind: str) -> Any:
    """The value as its type holds it."""
    if kind == "string":
        return value if isinstance(value, str | bytes) else str(value)
    number = value if isinstance(value, int | float) else 0
    if kind in ("f32", "f64"):
        with np.errstate(over="ignore"):
            return float(np.float32(number)) if kind == "f32" else float(number)
    return _bounded(int(number) if number == number and abs(number) < 1e300 else 0, kind)


def _bounded(value: int, kind: str) -> int:
    bits = 8 if kind == "bool" else int(kind[1:])
    value &= 2**bits - 1
    return value - 2**bits if kind[0] == "i" and value >= 2 ** (bits - 1) else value


def changed_field(pairs: list[Field], draw: random.Random) -> None:
    """Change one key: its value, type, name, or whether it is there; those of the model more often than those of its
    tokenizer."""
    places = [place for place, each in enumerate(pairs) if not each.key.startswith("tokenizer.") or draw.random() < 0.2]
    place = draw.choice(places)
    field, how = pairs[place], draw.randrange(12)
    if how == 0:
        del pairs[place]
    elif how == 1:
        pairs.append(Field(field.key, field.kind, field.value))
    elif how == 2:
        pairs[place] = Field(field.key + draw.choice(("x", ".", ".y")), field.kind, field.value)
    elif how == 3:
        pairs[place] = Field(field.key, draw.choice((*NUMERIC, "string")), field.value)
    elif how == 4 and not isinstance(field.value, list):
        pairs[place] = Field(field.key, field.kind, [field.value] * draw.choice((0, 1, 2, 3, 1000)))
    else:
        value = mutated(field.value, draw)
        kinds = {
            bool: "bool",
            int: draw.choice(("u32", "i32", "u64", "i64")),
            float: draw.choice(("f32", "f64")),
            str: "string",
        }
        kind = field.kind if type(value) is type(field.value) else kinds.get(type(value), field.kind)
        pairs[place] = Field(field.key, kind, value if not isinstance(value, dict | type(None)) else str(value))


def changed_tensor(tensors: list[Info], draw: random.Random) -> None:
    """Change one tensor: lengths, number of axes, type, name, offset, or whether it is there."""
    place = draw.randrange(len(tensors))
    info, how = tensors[place], draw.randrange(9)
    if how == 0:
        del tensors[place]
    elif how == 1:
        tensors.append(Info(info.name + draw.choice(("", "x")), info.dims, info.kind, info.offset))
    elif how == 2:
        info.name = draw.choice((*WORDS, info.name + "x", info.name.replace("0", "1"), info.name.replace("0", "65535")))
    elif how == 3:
        info.kind = draw.choice((1, 2, 8, 12, 24, 26, 28, 30, 39, 99, 2**31))
    elif how == 4:
        info.offset = draw.choice((0, 1, 32, info.offset + 32, 2**40, 2**63))
    elif how == 5:
        info.dims = draw.choice(
            (info.dims[::-1], info.dims[1:], [1, *info.dims], [*info.dims, 1], [0, *info.dims[1:]], [1] * 9)
        )
    else:
        axis = draw.randrange(len(info.dims))
        info.dims[axis] = draw.choice(
            (0, 1, info.dims[axis] - 1, info.dims[axis] + 1, info.dims[axis] // 2, 2**31, 2**40, 2**63)
        )


__all__ = ["NAMES", "Field", "Info", "changed_field", "changed_tensor", "encoded", "fields", "infos"]

"""Single files: all parts of a model under the names of its original code, in one file of weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ....runtime.base.dataclass import dataclass
from ....runtime.tensor.stored_tensor import StoredTensor
from ...schema.diffusion.module_names import Pair

Weights = Mapping[str, StoredTensor]
Config = Mapping[str, Any]


def _always(config: Config) -> bool:
    return True


@dataclass(frozen=True)
class FilePart:
    """A part in a single file.

    Attributes:
        prefix: how names of its weights begin in the file.
        config: its config.json, from its weights by the names in the file, without the prefix.
        modules: names of modules in the file and in diffusers, from the same weights; None where names stay.
        stated: the same from a config.json.
        matrices: parts of names of weights that are 1 x 1 convolutions in the file and matrices in diffusers.
        kept: whether a weight of the file is the part's, by its name without the prefix and the config.json.
        suits: whether a part with a config.json of diffusers or transformers is written so.
    """

    prefix: str
    config: Callable[[Weights], dict[str, Any]]
    modules: Callable[[Weights], list[Pair]] | None = None
    stated: Callable[[Config], list[Pair]] | None = None
    matrices: tuple[str, ...] = ()
    kept: Callable[[str, Config], bool] | None = None
    suits: Callable[[Config], bool] = _always


@dataclass(frozen=True)
class SingleFile:
    """How the parts of a model stand in one file.

    Attributes:
        title: of the naming, for people.
        marks: names of weights that such files have, and other single files do not.
        lacks: names that they lack.
        index: the model_index.json of the folder that the file becomes.
        parts: by the names of the folders.
        scheduler: the scheduler's configuration, from the configurations of the parts.
        ignored: how names begin of what is no weight of a part: tables of the schedule, averaged weights.
    """

    title: str
    marks: tuple[str, ...]
    index: Mapping[str, Any]
    parts: Mapping[str, FilePart]
    scheduler: Callable[[Mapping[str, Config]], dict[str, Any]]
    lacks: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ("model_ema.",)

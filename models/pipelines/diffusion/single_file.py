"""Single files: all parts of a model under the names of its original code, in one file of weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ....runtime.base.dataclass import dataclass
from ....runtime.contract.architecture import Config as Bound
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
        config: its config.json, from its weights by the names in the file, without the prefix; what the weights of an
            architecture with rows imply may be left out.
        names: the convention of these names, for an architecture with rows of weights ...
        modules: ... and for others names of modules in the file and in diffusers, from the same weights.
        stated: the same from bound hyper-parameters. ValueError for a part that has no such names.
        completed: the weights with those that some files lack.
        matrices: parts of names of weights that are 1 x 1 convolutions in the file and matrices in diffusers.
        kept: whether a weight of the file is the part's, by its name without the prefix and the config.json.
        suits: whether a part with a config.json of diffusers or transformers is written so.
        optional: whether files may lack the part.
        settings: hyper-parameters that weights have to imply, by their keys in config.json, from bound ones: the same
            values for configurations that compute the same.
    """

    prefix: str
    config: Callable[[Weights], dict[str, Any]]
    names: str | None = None
    modules: Callable[[Weights], list[Pair]] | None = None
    stated: Callable[[Bound], list[Pair]] | None = None
    completed: Callable[[Weights], Weights] | None = None
    matrices: tuple[str, ...] = ()
    kept: Callable[[str, Config], bool] | None = None
    suits: Callable[[Config], bool] = _always
    optional: bool = False
    settings: Callable[[Bound], Config] | None = None


@dataclass(frozen=True)
class SingleFile:
    """Layout of a pipeline's parts in one file.

    Attributes:
        title: of the naming, for people.
        kind: the class of diffusers' pipeline, in the model_index.json of the folder that the file becomes.
        marks: names of weights that such files have, and other single files do not.
        parts: by the names of the folders.
        scheduler: the scheduler's configuration, from the configurations of the parts.
        tokenizers: the folder of each tokenizer: the token that fills texts of CLIP's, whose files are known, or None
            for another tokenizer, which stands in a folder next to the file.
        ignored: how names begin of what is not a weight of a part: tables of the schedule, averaged weights.
    """

    title: str
    kind: str
    marks: tuple[str, ...]
    parts: Mapping[str, FilePart]
    scheduler: Callable[[Mapping[str, Config]], dict[str, Any]]
    tokenizers: Mapping[str, str | None]
    ignored: tuple[str, ...] = ("model_ema.",)

"""GGUF files of denoising networks, as ComfyUI-GGUF and stable-diffusion.cpp read them: the authors' names of weights,
and a word for the architecture."""

from __future__ import annotations

from collections.abc import Callable

from ....runtime.base.dataclass import dataclass
from ....runtime.contract.architecture import Config
from .single_file import FilePart

ARCHITECTURE, SHAPE = "general.architecture", "comfy.gguf.orig_shape."
"""Keys: of the word, and of the shape of a tensor that is stored in another one, before the tensor's name."""


def _always(config: Config) -> bool:
    return True


@dataclass(frozen=True)
class PictureGguf:
    """A kind of such files. A family lists its own as `PICTURE_GGUF`.

    Attributes:
        name: the value of ``general.architecture``.
        architecture: the name of ours.
        part: names of weights, for an architecture whose rows lack them.
        accepts: whether a network of the architecture is of this kind, from its hyper-parameters.
    """

    name: str
    architecture: str
    part: FilePart | None = None
    accepts: Callable[[Config], bool] = _always

"""Multimodal RoPE (M-RoPE; Wang et al. 2024, arXiv:2409.12191): how many rotated pairs have the position in time, the
row and the column of a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ....runtime.base.dataclass import dataclass
from ....runtime.contract.architecture import HF, Config, value_at
from ....runtime.contract.hyperparameter import Integer, Listed, checked
from .stated_parameters import OLDER, PARAMETERS

AXES = 3
SECTIONS = Listed(Integer(0, 1 << 16), AXES, AXES)
KEY = "mrope_section"


@dataclass(frozen=True)
class MultimodalRope:
    """Hyper-parameter of a text part: the axis of each rotated pair, from how many pairs each axis has.

    Attributes:
        sections: the pairs of each axis where the file does not state them.
        interleaved: whether pairs of rows and columns are every third one from the front, or else axes follow each
            other.
        place: the object of config.json that describes the text part.
    """

    sections: tuple[int, ...]
    interleaved: bool = False
    place: str = "text_config"
    name: str = "text.position_axes"

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> list[int]:
        """The axes."""
        outer = (self.place, "") if names == HF and not source.get(self.place) else (self.place,)
        for place in outer:
            for key in (OLDER, PARAMETERS):
                path = ".".join(filter(None, (place, key, KEY)))
                stated = value_at(source, path) if names == HF else source.get(path)
                if stated is not None:
                    return self.axes(checked(path, stated, SECTIONS))
        return self.axes(self.sections)

    def axes(self, sections: Sequence[int]) -> list[int]:
        """The axis of each pair."""
        if not self.interleaved:
            return [axis for axis, count in enumerate(sections) for _ in range(count)]
        found = [0] * sum(sections)
        for axis in (1, 2):
            for pair in range(axis, min(AXES * sections[axis], len(found)), AXES):
                found[pair] = axis
        return found

    def write(self, names: str, config: Config) -> dict[str, Any]:
        """The keys of transformers."""
        axes = config.values[self.name]
        stated: dict[str, Any] = {KEY: [axes.count(axis) for axis in range(AXES)], "rope_type": "default"}
        stated |= {"mrope_interleaved": True} if self.interleaved else {}
        return {f"{self.place}.{OLDER}.{key}": value for key, value in stated.items()}

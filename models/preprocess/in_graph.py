"""Pictures for graphs that prepare them: their bytes, and the position of each in the graph's batch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...runtime.base.dataclass import dataclass
from .picture import Picture, picture_of
from .placement import Placement
from .preparation import Padding, Preparation, Prepared, bytes_of


@dataclass(frozen=True)
class InGraph:
    """The counterpart of `Preparation` for graphs that prepare pictures themselves.

    Attributes:
        stated: the preparation that the graph's nodes compute.
        same_sizes: pictures of a batch have one size.
    """

    stated: Preparation
    same_sizes: bool = True

    def prepare(self, picture: Picture) -> Prepared:
        """Bytes [height, width, channels] of one picture, and its placement before padding."""
        image = picture_of(picture, self.stated.channels)
        return Prepared(bytes_of(image), self.stated.placement((image.height, image.width)))

    def batch(self, pictures: Sequence[Prepared]) -> tuple[dict[str, np.ndarray], list[Placement]]:
        """``pixel_values`` u8 [batch, height, width, channels], and the placement of each picture."""
        padding = self.stated.padding or Padding()
        box = padding.box([picture.at.input for picture in pictures])
        placements = [picture.moved(padding.corner(picture.at.input, box), box) for picture in pictures]
        return {"pixel_values": np.stack([picture.values for picture in pictures])}, placements

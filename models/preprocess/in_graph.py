"""Pictures for graphs that prepare them: their bytes, and where the graph places each of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...runtime.base.dataclass import dataclass
from .picture import Picture, picture_of
from .placement import Placement
from .preparation import Padding, Preparation, Prepared, bytes_of


@dataclass(frozen=True)
class InGraph:
    """What `Preparation` is for other graphs.

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
        box = padding.box([each.at.input for each in pictures])
        placements = [each.moved(padding.corner(each.at.input, box), box) for each in pictures]
        return {"pixel_values": np.stack([each.values for each in pictures])}, placements

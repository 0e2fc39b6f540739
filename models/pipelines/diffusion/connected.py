"""Pipelines of two stages that are published in two repositories, as diffusers connects them."""

from __future__ import annotations

from ....runtime.base.dataclass import dataclass


@dataclass(frozen=True)
class ConnectedPipelines:
    """The classes of diffusers for the stages and for both together. A family lists its own as `CONNECTED`.

    Attributes:
        last: the class of the repository that is named: the stage that draws the picture.
        first: of the other repository, which the model card names as `key`.
        whole: of both.
        prefix: before names of the first stage's folders in those of the whole.
    """

    last: str
    first: str
    whole: str
    key: str = "prior"
    prefix: str = "prior_"

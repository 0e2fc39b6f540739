"""Tasks of image models: one graph each, of the family's layers and the head of the task."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ....runtime.contract.architecture import MODEL, Config, GraphBuilder, RunOptions, Task
from ....runtime.ir.graph import Graph, Value
from ....runtime.tensor.stored_tensor import StoredTensor
from ...layers.image.image_net import ImageNet
from ...schema.network_hyperparameters import IMAGE_CLASSIFICATION, IMAGE_FEATURES

if TYPE_CHECKING:
    from .image_model import ImageModel

Layer = Callable[[ImageNet, Value], Value]


def image_tasks(
    features: Callable[[ImageNet], Value], pool: Layer, classify: Layer, pooler: Layer | None = None
) -> tuple[Task, ...]:
    """The tasks of a classifier.

    Args:
        features: adds the input and the layers, and returns what they compute.
        pool: one vector of an image, [batch, channels], from that.
        classify: logits [batch, labels] from the vector.
        pooler: what ``pooler_output`` is, from the result of `features`; None for `pool`.
    """

    def logits(net: ImageNet) -> None:
        net.output("logits", classify(net, pool(net, features(net))))

    def vectors(net: ImageNet) -> None:
        x = features(net)
        net.output("last_hidden_state", x)
        net.output("pooler_output", (pooler or pool)(net, x))

    return (
        Task(IMAGE_CLASSIFICATION, {MODEL: image_graph(logits)}, run_image_model, aliases=("classification",)),
        Task(IMAGE_FEATURES, {MODEL: image_graph(vectors)}, run_image_model, aliases=("hidden", "feature-extraction")),
    )


def image_graph(build: Callable[[ImageNet], None]) -> GraphBuilder:
    """The builder of a graph whose nodes `build` adds."""

    def graph(graph: Graph, config: Config, weights: Mapping[str, StoredTensor], *, fixed: bool) -> None:
        build(ImageNet(graph, config, weights))

    return graph


def run_image_model(graphs: Mapping[str, Graph], options: RunOptions) -> ImageModel:
    """The only graph as a model that takes pixels."""
    from .image_model import ImageModel

    return ImageModel(graphs[MODEL], options)

"""Files that come with a model: the tokenizer, and what stands next to an ONNX file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ...runtime.base.gc_pause import unsearched
from ...runtime.ir.graph import Graph
from ..open.model_directory import model_folder
from ..open.open_model import attachments
from .recognise import NODES

if TYPE_CHECKING:
    from ...models.tokenizer import Tokenizer


@unsearched
def tokenizer_of(graph: Graph) -> Tokenizer:
    """The tokenizer that came with what was read, or stands next to an ONNX file."""
    from ...models.tokenizer import read

    return read(with_files(graph))


def with_files(graph: Graph) -> Graph:
    """The same graph; one of nodes with the tokenizer and configuration that stand next to its file."""
    if graph.format == NODES and not graph.attachments and graph.files:
        graph.attachments = attachments(model_folder(Path(graph.files[0]).parent), graph)
    return graph

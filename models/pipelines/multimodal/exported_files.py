"""JSON files next to exported graphs, with the keys by which Transformers.js prepares pictures and counts their
placeholders."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ....runtime.base.dataclass import dataclass
from ....runtime.contract.architecture import Config
from ....runtime.ir.graph import Graph
from ...preprocess.stated_preparation import stated_settings
from ...tokenizer.readers.locate import settings

CONFIG, PICTURES, PROCESSOR = "config.json", "preprocessor_config.json", "processor_config.json"
CLASS = "processor_class"
Settings = Callable[[Config], Mapping[str, Any]]


def _none(config: Config) -> Mapping[str, Any]:
    return {}


@dataclass(frozen=True)
class ExportedFiles:
    """The files next to a family's exported graphs, for `Architecture.exported_files`.

    Attributes:
        processor: the class of transformers that makes prompts, of models whose files name none.
        counts: settings of that class, in place of those of the files.
        pictures: settings of pictures, in place of those of the files.
        usual: settings of pictures that files may leave out.
        model: makes the config.json of that of the source.
        deviation: what Transformers.js does otherwise, for a warning; empty if nothing.
    """

    processor: str | Callable[[Config], str]
    counts: Settings = _none
    pictures: Settings = _none
    usual: Settings = _none
    model: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None
    deviation: str = ""

    def __call__(self, graph: Graph, config: Config) -> dict[str, Any]:
        """The contents of the files by name; those of pictures only where the source states how they are prepared."""
        if self.deviation:
            graph.event("W-ONNX-TRANSFORMERS-JS", f"Transformers.js {self.deviation}")
        found: dict[str, Any] = {}
        stated, prompts = stated_settings(graph), settings(graph, PROCESSOR)
        named = self.processor if isinstance(self.processor, str) else self.processor(config)
        named = prompts.get(CLASS) or stated.get(CLASS) or named
        if stated:
            found[PICTURES] = {**self.usual(config), **stated, **self.pictures(config), CLASS: named}
        counts = self.counts(config)
        if counts:
            found[PROCESSOR] = {**prompts, **counts, CLASS: named}
        if self.model is not None:
            found[CONFIG] = self.model(settings(graph, CONFIG))
        return found

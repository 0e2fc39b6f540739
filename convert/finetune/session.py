"""A run of finetuning: the class for the rows, examples, training with measures before and after, and the output."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...models.pipelines.multimodal.dual_encoders.dual_encoder_graphs import ZERO_SHOT
from ...models.preprocess.stated_preparation import FILES, IMAGENET_FILE, stated_preparation
from ...models.tokenizer import Tokenizer
from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import UsageError
from ...runtime.ir.graph import Graph
from ...runtime.tensor.dtype import DTYPES
from ...runtime.tensor.storage import Held
from ...tensors.namespace import PUBLIC
from ..load.attached_files import tokenizer_of
from ..load.canonical_names import canonical_names
from ..load.recognise import identified
from ..pictures.picture_inputs import IMAGENET, read_preparation
from ..trainable.front import PretrainedModel, model_class
from .examples import Example, label_names, labeled_pictures, labeled_texts, language_examples, padded, pictured
from .loop import Batch, Measures, Settings, Training, measured
from .picture_examples import Answers, Pairs
from .rows import ALPACA, COMPLETION, IMAGE_LABEL, MESSAGES, OF_PICTURES, PICTURE_TEXT, TEXT, TEXT_LABEL, Rows, split

CLASSES = {
    MESSAGES: "AutoModelForCausalLM",
    ALPACA: "AutoModelForCausalLM",
    COMPLETION: "AutoModelForCausalLM",
    TEXT: "AutoModelForCausalLM",
    TEXT_LABEL: "AutoModelForSequenceClassification",
    IMAGE_LABEL: "AutoModelForImageClassification",
}
"""The class that learns rows of each kind."""
ANSWERS, PAIRS = "AutoModelForImageTextToText", "AutoModelForZeroShotImageClassification"
"""The classes that learn texts about pictures, and which of them fit."""
LENGTH, LENGTH_WITH_PICTURES = 512, 4096
"""Tokens of an example by default, at most."""
ADAPTER = "adapter"
"""The folder of the adapter in that of a merged model."""
FULL_RATE, ADAPTER_RATE = 2e-5, 2e-4


@dataclass(frozen=True)
class Wanted:
    """The request of a run.

    Attributes:
        rank: of adapters, 0 to train all weights.
        targets: layers with adapters, None for all linear ones.
        rate: the highest learning rate, None for `FULL_RATE` or `ADAPTER_RATE`.
        length: tokens of an example at most, None for `LENGTH` or what the model takes.
        share: of the rows that is evaluated and not trained with.
        merge: whether adapters are also merged into the model that is written.
        new_head: whether a classifier gets a head for the labels of the data.
        preprocessor: file that says how pictures are prepared, or its folder; None for what the model says.
        dtype: of the written weights; None for that of the model.
    """

    epochs: int
    size: int
    seed: int
    rank: int = 0
    alpha: float | None = None
    dropout: float = 0.0
    targets: tuple[str, ...] | None = None
    rate: float | None = None
    length: int | None = None
    share: float = 0.1
    merge: bool = False
    new_head: bool = False
    preprocessor: str | None = None
    dtype: str | None = None

    @property
    def settings(self) -> Settings:
        """How is trained."""
        usual = ADAPTER_RATE if self.rank else FULL_RATE
        return Settings(self.epochs, usual if self.rate is None else self.rate, self.size, self.seed)


class Session:
    """A model with examples.

    Attributes:
        model: the module; learned, held: examples to train and to evaluate with.
        training: its steps.
        labels: of a classifier, None for language models.
    """

    def __init__(self, graph: Graph, name: str, rows: Rows, wanted: Wanted) -> None:
        self.wanted, self.name, self.rows = wanted, name, rows
        PUBLIC["manual_seed"](wanted.seed)
        if wanted.dtype is not None and wanted.dtype in DTYPES and DTYPES[wanted.dtype].kind != "float":
            why = f"--dtype {wanted.dtype} is not a type of weights that are trained"
            raise UsageError("E-OPTION", None, why, expected="f32, f16, bf16 or auto")
        self.labels: list[str] | None = None
        changes: dict[str, Any] = {}
        if rows.kind in (TEXT_LABEL, IMAGE_LABEL):
            changes = self._head(graph)
        kind = model_class(self._class_for(graph))
        assert kind is not None
        self.model: PretrainedModel = kind.from_graph(graph, quantized=bool(wanted.rank), **changes)
        if wanted.preprocessor is not None:
            self._take_preprocessor(wanted.preprocessor)
        order = np.random.default_rng(wanted.seed).permutation(len(rows.rows))
        learned, held = split(rows, wanted.share, order)
        self.limit = self._limit()
        self.tokenizer: Tokenizer | None = None if rows.kind == IMAGE_LABEL else tokenizer_of(self.model.opened.source)
        self._pictured = self._pictures() if rows.kind in OF_PICTURES else None
        self.learned, self.held = self._examples(learned), self._examples(held)
        self._assemble = self._assembly()
        if wanted.rank:
            heads = (
                ()
                if self.labels is None
                else tuple(sorted({head.rpartition(".")[0] for head in self.model.opened.heads}))
            )
            self.model.add_adapters(
                wanted.rank, alpha=wanted.alpha, dropout=wanted.dropout, targets=wanted.targets, saved=heads
            )
        elif any(tensor.qtype is not None for tensor in self.model.opened.tensors.values()):
            raise UsageError("E-TRAIN-QUANTIZED", name, "quantized weights cannot be trained", hint="Use --lora 16")
        self.training = Training(self.model, self.learned, wanted.settings, self.limit, self._assemble)

    def _take_preprocessor(self, path: str) -> None:
        """Let a file say how pictures are prepared, instead of the model; it is written with the model."""
        if self.rows.kind != IMAGE_LABEL:
            why = "--preprocessor says how pictures are prepared, and the rows are texts"
            raise UsageError("E-OPTION", path, why)
        if os.path.isdir(path):
            path = os.path.join(path, FILES[0])
        read_preparation(path)
        attachments = self.model.opened.source.attachments
        for name in FILES:
            attachments.pop(name, None)
        content = json.dumps(IMAGENET_FILE).encode() if path == IMAGENET else Path(path).read_bytes()
        attachments[FILES[0]] = Held(content)

    def _class_for(self, graph: Graph) -> str:
        """The class that learns the rows. UsageError for a vision-language model without adapters."""
        if self.rows.kind not in OF_PICTURES:
            return CLASSES[self.rows.kind]
        tasks = [task.name for task in identified(canonical_names(graph))[0].tasks]
        if ZERO_SHOT in tasks and self.rows.kind == PICTURE_TEXT:
            return PAIRS
        if not self.wanted.rank:
            why = "only adapters learn rows with pictures and answers"
            raise UsageError("E-OPTION", self.name, why, hint="Pass --lora 16")
        return ANSWERS

    def _pictures(self) -> Answers | Pairs:
        """The maker of examples of pictures with texts."""
        from ..load.load_model import load

        model: Any = load(self.model.opened.source)
        pairs = self.model.opened.config.task == ZERO_SHOT
        return Pairs(self.rows, model) if pairs else Answers(self.rows, model, self.limit)

    def _head(self, graph: Graph) -> dict[str, Any]:
        """Changes of config.json for a head that the model lacks or that is replaced."""
        from ..open.prequantized import configuration
        from ..trainable.pretrained_weights import as_directory, has_head

        source = as_directory(graph)
        stated = configuration(source) or {}
        names = label_names(self.rows)
        if has_head(source) and not self.wanted.new_head:
            known = {int(number): str(name) for number, name in (stated.get("id2label") or {}).items()}
            self.labels = [known[number] for number in sorted(known)] or names
            return {}
        if len(names) < 2:
            raise UsageError(
                "E-DATA-LABELS", self.rows.path, f"all rows have the label {names[0]!r}", expected="two labels"
            )
        self.labels = names
        return {"new_head": True, "id2label": dict(enumerate(names)), "problem_type": "single_label_classification"}

    def _limit(self) -> int:
        """Tokens of an example, at most."""
        values, pictured = self.model.opened.config.values, self.rows.kind in OF_PICTURES
        length = LENGTH_WITH_PICTURES if pictured else LENGTH
        context = values.get("text.context" if pictured else "context") or length
        if self.wanted.length is not None and self.wanted.length > context:
            why = f"--max-length {self.wanted.length} is more than the model takes"
            raise UsageError("E-OPTION", self.name, why, expected=f"at most {context}")
        return self.wanted.length or min(context, length)

    def _examples(self, rows: Rows) -> list[Example]:
        if self._pictured is not None:
            return self._pictured.examples(rows)
        if self.labels is None:
            assert self.tokenizer is not None
            return language_examples(rows, self.tokenizer, self.limit)
        if self.tokenizer is None:
            return labeled_pictures(rows, self.labels)
        return labeled_texts(rows, self.labels, self.tokenizer, self.limit)

    def _assembly(self) -> Callable[[Sequence[Example], int], Batch]:
        size = self.wanted.size
        if self._pictured is not None:
            return self._pictured.batch
        if self.tokenizer is None:
            preparation = stated_preparation(self.model.opened.source)
            return lambda examples, length: pictured(self.rows, examples, size, preparation)
        pad = self.model.opened.config.values.get("pad")
        pad = self.tokenizer.pad if pad is None else pad
        return lambda examples, length: padded(examples, size, length, pad if pad is not None and pad >= 0 else 0)

    @property
    def parameters(self) -> tuple[int, int]:
        """How many parameters are trained, and how many the model has."""
        every = sum(tensor.count for tensor in self.model.opened.tensors.values())
        added = sum(each.numel() for each in self.model.parameters() if each.requires_grad)
        return added, every + (added if self.wanted.rank else 0)

    @property
    def pairs(self) -> bool:
        """Whether the rows are texts with pictures that they fit."""
        return isinstance(self._pictured, Pairs)

    @property
    def answers(self) -> bool:
        """Whether the rows are answers about pictures."""
        return isinstance(self._pictured, Answers)

    @property
    def title(self) -> str:
        """The model's title."""
        return self.model.opened.architecture.title

    def measure(self) -> Measures:
        """Measure the model on the held-out examples."""
        return measured(self.model, self.held, self.wanted.size, self.limit, self._assemble)

    def write(self, folder: str) -> list[str]:
        """Write the model, the adapter, or both; returns the paths. A new head goes with the whole model."""
        whole = not self.wanted.rank or self.wanted.merge or self.labels is not None
        written = []
        if whole:
            written += self.model.save_pretrained(folder, dtype=self.wanted.dtype or self.model.stored_dtype)
        if self.wanted.rank:
            place = os.path.join(folder, ADAPTER) if whole else folder
            base = str(Path(self.name).absolute()) if os.path.exists(self.name) else self.name
            written += self.model.save_adapters(place, base)
        return written

"""Quantization from Python: `Recipe`, `quantize` and `QuantizationPlan`."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from ...ops.quants.packings import packing_named
from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import UsageError
from ...runtime.base.limits import size
from ...runtime.base.out_of_memory import memory_limited
from ...runtime.base.units import human_size
from ...runtime.ir.clone import with_own_tables
from ...runtime.ir.graph import Graph
from ..console.atomic_replace import replacing
from ..console.progress import Progress
from ..open.detect_format import by_suffix
from ..open.model_files import MODEL_INDEX
from ..open.open_model import open_model
from ..open.shard_set import whole_model
from ..translate import gguf_file_type
from ..write import pipeline
from ..write.conversion_options import Options, changed, takes_options
from ..write.plan import target_format
from ..write.write import crew_of, start_early
from . import llama_options, table
from .bits import quantize_network, type_of
from .compile_encoders import prepare
from .packed.pack_weights import SAFETENSORS
from .pipeline_folder import pipeline_of
from .plan import Quantized
from .plan import plan as planned
from .recipe import imatrix, recipe, rule
from .recipe.choose_type import Choice, Wishes
from .recipe.request import AUTO, Quantization

if TYPE_CHECKING:
    from ..write.option_changes import Changes
    from .picture_loss import PictureLoss

PathLike = str | os.PathLike[str]
Model = PathLike | Graph
DEFAULT = "q4_k_m"
GGUF = "gguf"


@dataclass(frozen=True)
class Recipe:
    """A quantization recipe.

    Attributes:
        type: a file type of llama.cpp (``Q4_K_M``, ``COPY``), a type of ``candle-convert types``, a recipe that comes
            with the package, or the path of one in TOML. None with a target. ``W4A16``, ``AWQ`` and other types of
            several tensors go to a directory of safetensors.
        types: patterns of tensor names with the types they get; the first that matches wins over `type`.
        imatrix: path of an importance matrix; include_weights, exclude_weights: parts of names for which alone, or not,
            it counts.
        on_fallback: ``warn``, or ``error`` to refuse a model with rows that the chosen type cannot hold.
        target_bpw, target_size: bits a weight, or bytes of the output ("6GiB"): types are chosen for the least error
            within it.
        pure: the same type for all tensors that are quantized.
        output_type, embedding_type: of output.weight and the token embedding; leave_output: output.weight is
            not quantized.
        allow_requantize: whether quantized tensors may be quantized again.
        prune_layers: blocks to leave out.
        keep_split: as many output files as input files.
        override_kv: metadata, as ``KEY=TYPE:VALUE``.
        device: where blocks are encoded, with the same bytes: ``cpu``, ``cuda`` or ``cuda:N``.
        group_size: elements of a row that share a scale, of types such as ``W4A16``.
    """

    type: str | None = None
    types: Mapping[str, str] = field(default_factory=dict)
    imatrix: PathLike | None = None
    on_fallback: str = "warn"
    target_bpw: float | None = None
    target_size: int | str | None = None
    pure: bool = False
    output_type: str | None = None
    embedding_type: str | None = None
    leave_output: bool = False
    allow_requantize: bool = False
    prune_layers: Sequence[int] = ()
    keep_split: bool = False
    override_kv: Sequence[str] = ()
    include_weights: Sequence[str] = ()
    exclude_weights: Sequence[str] = ()
    device: str = "cpu"
    group_size: int | None = None

    def request(self, *, measure: bool = False) -> Quantization:
        """The same as the command line would ask for; reads the importance matrix."""
        if self.on_fallback not in recipe.ON_FALLBACK:
            why = f"unknown on_fallback {self.on_fallback!r}"
            raise UsageError("E-OPTION", None, why, hint=f"It is one of: {', '.join(recipe.ON_FALLBACK)}")
        automatic = self.target_bpw is not None or self.target_size is not None
        name = AUTO if automatic and self.type is None else self.type
        typed = (
            name is None
            or name.lower() in (AUTO, gguf_file_type.COPY)
            or gguf_file_type.of_text(name) is not None
            or packing_named(name) is not None
            or _is_type(name)
        )
        importance = None
        if self.imatrix is not None:
            importance = imatrix.read(os.fspath(self.imatrix)).limited(self.include_weights, self.exclude_weights)
        pairs = tuple((llama_options.pattern(left), right) for left, right in self.types.items())
        return Quantization(
            type=name if typed else None,
            recipe=None if typed else name,
            wishes=Wishes(pairs, self.output_type, self.embedding_type, self.leave_output, self.pure),
            importance=importance,
            allow_requantize=self.allow_requantize,
            no_fallback=self.on_fallback == "error",
            prune=tuple(sorted(set(self.prune_layers))),
            keep_split=self.keep_split,
            overrides=tuple(llama_options.override(text) for text in self.override_kv),
            target_bpw=self.target_bpw,
            target_size=None if self.target_size is None else size(self.target_size),
            measure=measure,
            group=self.group_size,
            device=self.device,
        )


def _is_type(name: str) -> bool:
    try:
        rule.type_named(name)
    except UsageError:
        return False
    return True


@dataclass(repr=False)
class QuantizationReport(pipeline.Report):
    """The result of quantizing: the report of the conversion, and the type of each tensor.

    Attributes:
        recipe: name of the rules that decided.
        bits_per_weight: over all tensors.
        types: by tensor name: from, type, rule, and where they were measured rmse, max_error and snr_db.
        picture: how far a pipeline's picture is from that of the original, where it was measured.
    """

    recipe: str = ""
    bits_per_weight: float = 0.0
    types: dict[str, dict[str, Any]] = field(default_factory=dict)
    picture: PictureLoss | None = None


class QuantizationPlan:
    """The types that quantizing would choose; as text, the table that ``--dry-run`` shows.

    Args:
        model: a path or an open graph, which is left as it is.
        output: where it is to go, if that is known; a GGUF file by default.
    """

    def __init__(
        self,
        model: Model,
        wanted: Recipe,
        options: Options | None = None,
        *,
        measure: bool = False,
        output: PathLike | None = None,
    ) -> None:
        self.options = options or Options()
        self.inputs = [] if isinstance(model, Graph) else [os.fspath(model)]
        self.graph = model if isinstance(model, Graph) else _opened(model, self.options)
        self.request = wanted.request(measure=measure)
        self._output = os.fspath(output if output is not None else "model.gguf" if self.options.to is None else "model")
        self._shown = self._plan(self._output, self.request)

    def _plan(self, output: PathLike, request: Quantization) -> Quantized:
        return planned(with_own_tables(self.graph), output, request, self.options, self.inputs)

    @property
    def choices(self) -> list[Choice]:
        """The choice for each tensor, in the order of the output."""
        return self._shown.choices

    @property
    def bits_per_weight(self) -> float:
        return table.total(self.choices).bits

    @property
    def nbytes(self) -> int:
        """Bytes of the output."""
        return self._shown.plan.nbytes

    def __repr__(self) -> str:
        return (
            f"<QuantizationPlan of {self.graph!r}: {self.bits_per_weight:.2f} bits per weight, "
            f"{human_size(self.nbytes)}; print() shows the types>"
        )

    def __str__(self) -> str:
        return "\n".join(table.text(self.choices, self._shown.sampled()))

    def save_recipe(self, path: PathLike, *, force: bool | None = None) -> None:
        """Write the rules that decide as TOML; an existing file is replaced unless `force` is False."""
        with replacing(path, force=force is not False) as file:
            file.write(recipe.to_toml(self._shown.recipe).encode())

    def execute(
        self, output: PathLike, *, progress: Progress | None = None, cluster: Any = None, **changes: Any
    ) -> QuantizationReport:
        """Quantize to `output`, on the workers of `cluster` if it is given; keyword arguments are fields of `Options`
        such as ``resume=True``."""
        self.options = changed(self.options, changes)
        found, path = self.request, os.fspath(output)
        if path == self._output:
            found = self._shown.explicit(found)
        made = self._plan(path, found)
        prepare(made.choices, made.importance)
        report = self._carried_out(made, path, found, progress, cluster)
        errors = {audit.tensor: measured for audit in made.quantize.blocks if (measured := audit.errors) is not None}
        plain = {each.name: getattr(report, each.name) for each in dataclasses.fields(report)}
        plain["notes"] = [*report.notes, *made.block_notes()]
        return QuantizationReport(
            **plain,
            recipe=made.recipe.name,
            bits_per_weight=table.total(made.choices).bits,
            types=table.tensors_json(made.choices, errors),
            picture=self._picture(made) if found.measure else None,
        )

    def _picture(self, made: Quantized) -> PictureLoss | None:
        """How far the picture of a pipeline is from that of the original; None for other models."""
        if pipeline_of(self.graph) is None:
            return None
        from .picture_loss import picture_loss

        return picture_loss(self.graph, open_model(made.plan.target, parts=True), self.options.threads)

    def _carried_out(
        self, made: Quantized, output: str, request: Quantization, progress: Progress | None, cluster: Any
    ) -> pipeline.Report:
        if cluster is None:
            return pipeline.execute(made.plan, progress)
        if not self.inputs:
            why = "an open model cannot be sent to a cluster"
            raise UsageError("E-OPTION", None, why, hint="Pass its path")
        crew = crew_of(cluster, made.plan, self.inputs, output, self.options, made.explicit(request), merged=False)
        return pipeline.execute(made.plan, progress, crew)


def _opened(path: PathLike, options: Options) -> Graph:
    return open_model(
        whole_model(path),
        options.read,
        format=options.source_format,
        revision=options.revision,
        offline=options.offline,
        parts=(Path(path) / MODEL_INDEX).is_file(),
    )


@memory_limited
@takes_options
def quantize(
    model: Model | None = None,
    output: PathLike | None = None,
    recipe: Recipe | str | None = None,
    *,
    bits: int | None = None,
    imatrix: PathLike | None = None,
    device: str | None = None,
    progress: Progress | None = None,
    measure: bool = False,
    options: Options | None = None,
    model_path: Model | None = None,
    output_path: PathLike | None = None,
    cluster: Any = None,
    **changes: Unpack[Changes],
) -> QuantizationReport | pipeline.Report:
    """Quantize a model, given as a path or an open graph, to `output`.

    Args:
        output: a file, whose suffix names the format, or a directory; without the suffix of a format it is GGUF. A
            name with any suffix, such as ``q8.model``, is that of the file.
        recipe: a `Recipe`, or the name of a type, mix or recipe; Q4_K_M by default.
        bits: 8 or 4, in place of a recipe: Q8_0 or Q4_K_M in GGUF files, int8 or blocks of int4 in ONNX files; 8 in
            other files, as bitsandbytes stores linear layers: integers with a scale for each row.
        imatrix: path of an importance matrix.
        device: where blocks of GGUF files are encoded, with the same bytes: ``cpu``, ``cuda`` or ``cuda:N``.
        measure: whether the error of every tensor is computed, and of a pipeline that of a picture.
        model_path, output_path: other names of `model` and `output`.
        cluster: workers that quantize and write the tensors, with the same bytes: what `cluster` returns. For GGUF and
            safetensors outputs of a path.
        changes: fields of `Options`; sizes may be text such as "2GiB".

    Raises UsageError without a model or an output, and for options that contradict each other.
    """
    model = _one_of("model", model, "model_path", model_path)
    output = _one_of("output", output, "output_path", output_path)
    settings = changed(options, changes)
    if settings.to is None and by_suffix(os.fspath(output)) is None:
        type_name = recipe.type if isinstance(recipe, Recipe) else recipe
        settings = dataclasses.replace(settings, to=GGUF if packing_named(type_name) is None else SAFETENSORS)
    if bits is not None:
        if recipe is not None:
            raise UsageError("E-OPTION", None, "bits and a recipe contradict each other", hint="Use one of them")
        recipe = type_of(bits)
        if cluster is not None and target_format(os.fspath(output), settings).graphs:
            why = "cluster does not apply: ONNX outputs are quantized in one process"
            raise UsageError("E-OPTION", None, why, hint="Omit cluster")
        written = quantize_network(model, Path(output), bits, settings, progress)
        if written is not None:
            return written
    wanted = recipe if isinstance(recipe, Recipe) else Recipe(recipe or DEFAULT)
    if imatrix is not None:
        wanted = dataclasses.replace(wanted, imatrix=imatrix)
    if device is not None:
        wanted = dataclasses.replace(wanted, device=str(device))
    if settings.allow_requantize:
        wanted = dataclasses.replace(wanted, allow_requantize=True)
    start_early(cluster)
    plan = QuantizationPlan(model, wanted, settings, measure=measure, output=output)
    return plan.execute(output, progress=progress, cluster=cluster)


def _one_of(name: str, value: Any, other: str, given: Any) -> Any:
    """An argument that has two names. UsageError if it is given by both or by none."""
    if (value is None) == (given is None):
        raise UsageError("E-OPTION", None, f"quantize takes either {name} or {other}")
    return given if value is None else value

"""Quantization to the schemes of PyTorch's servers: which matrices of a model are packed, and its config.json."""

from __future__ import annotations

import json
import re
from collections.abc import Collection

from ....ops.quants.packings import packings
from ....runtime.base.errors import FormatError, UnsafeFileError, UnsupportedError, UsageError
from ....runtime.base.units import counted
from ....runtime.contract.format import Format
from ....runtime.contract.quantization_scheme import Packing
from ....runtime.ir.graph import Graph
from ....runtime.tensor.storage import Derived, Held
from ....runtime.tensor.stored_tensor import StoredTensor
from ...open.prequantized import CONFIG, configuration
from ...translate.model_facts import LEFT_ALONE

PLAIN = re.compile(r"embed|embd|wte\.|wpe\.|lm_head|shared\.|^output\.weight")
"""Names of embeddings and output layers, which stay as they are."""
ENCODERS = re.compile(r"(?:^|\.)(?:vision|visual|audio|image|multi_modal|mm_proj)\w*\.")
"""Names of parts for pictures and sound, which stay as they are."""
ROUTERS = re.compile(r"\.(?:gate|router|shared_expert_gate)\.weight\Z")
SAFETENSORS = "safetensors"
OUTPUT_LAYER = "lm_head"
TRANSPOSED = ("gpt2", "openai-gpt", "imagegpt", "decision_transformer")
"""Values of model_type whose layers store [in, out]: no scheme has them."""


def refuse_other_formats(packing: Packing, format: Format, folder: bool, output: str) -> None:
    """UsageError unless a model directory of safetensors is written."""
    if format.name != SAFETENSORS or not folder:
        why = f"{packing.name} is written as a directory of safetensors with a config.json"
        raise UsageError("E-OPTION", output, why, hint="Name a folder as OUT, with --to safetensors")


def group_of(packing: Packing, wanted: int | None) -> int:
    """Elements of a row that share a scale; UsageError where they are no choice."""
    if wanted is not None and packing.group is None:
        having = ", ".join(each.name for each in packings().values() if each.group is not None)
        raise UsageError(
            "E-OPTION", None, f"{packing.name} has no groups of a chosen size", hint=f"--group-size goes with {having}"
        )
    return wanted or packing.group or 1


def pack_weights(
    graph: Graph, packing: Packing, names: Collection[str], group: int, *, no_fallback: bool = False
) -> dict[str, int]:
    """Replace the linear layers among weights `names` by the tensors that store them, and say so in config.json;
    returns the bytes of these by the name of the weight."""
    config = configuration(graph)
    weights: dict[str, StoredTensor] = {}
    skipped: list[str] = []
    unfit: list[str] = []
    packed: dict[str, int] = {}
    rows, columns = packing.steps(group)
    transposed = config is not None and config.get("model_type") in TRANSPOSED
    for name, tensor in graph.weights.items():
        stem, _, last = name.rpartition(".")
        weights[name] = tensor
        if last != "weight" or tensor.ndim != 2 or tensor.dtype.kind != "float" or transposed:
            continue
        alone = any(pattern.search(name) for pattern in (LEFT_ALONE, PLAIN, ENCODERS, ROUTERS))
        if alone or name not in names:
            skipped.append(stem)
            continue
        if tensor.shape[0] % rows or tensor.shape[1] % columns:
            skipped.append(stem)
            unfit.append(name)
            continue
        del weights[name]
        made = packing.pack(_finite(name, tensor), group)
        weights |= {f"{stem}.{part}": each for part, each in made.items()}
        packed[name] = sum(each.nbytes for each in made.values())
    _refuse(graph, packing, group, bool(packed), unfit, no_fallback)
    graph.weights = weights
    if config is not None:
        stated = packing.configure(sorted({*skipped, OUTPUT_LAYER}), group)
        text = json.dumps({**config, "quantization_config": stated}, indent=2)
        graph.attachments[CONFIG] = Held(text.encode() + b"\n")
    groups = f", groups of {group}" if packing.group is not None else ""
    what = f"{counted(len(packed), 'matrix', 'matrices')} as {packing.name}"
    graph.event("W-PACKED", f"{what}: {packing.title}{groups}")
    return packed


def _finite(name: str, weight: StoredTensor) -> StoredTensor:
    """The weight; reading raises FormatError for values that are not finite, which no code stands for."""
    import numpy

    kind, size = weight.dtype.as_numpy(), weight.dtype.block_nbytes

    def read(start: int, stop: int) -> bytes | memoryview:
        data = weight.storage.read(start, stop)
        finite = numpy.isfinite(numpy.frombuffer(data, kind))
        if not finite.all():
            why = f"tensor {name!r} has NaN or infinity at element {start // size + int(finite.argmin()):,}"
            hint = "Clean the weight, or leave it out: --tensor-type NAME=bf16"
            raise FormatError("E-NAN", None, why, hint=hint)
        return data

    storage = Derived(weight.nbytes, size, read, sequential=weight.storage.sequential)
    return StoredTensor(weight.dtype, weight.shape, storage)


def _refuse(graph: Graph, packing: Packing, group: int, packed: bool, unfit: list[str], no_fallback: bool) -> None:
    """Raise where nothing is packed, or matrices are skipped that were not to be; note these otherwise."""
    path = graph.files[0] if graph.files else None
    rows, columns = packing.steps(group)
    wanted = f"a multiple of {columns} columns" + (f" and of {rows} rows" if rows > 1 else "")
    if unfit:
        shape = list(graph.weights[unfit[0]].shape)
        why = f"{counted(len(unfit), 'matrix', 'matrices')} cannot be {packing.name}, such as {unfit[0]!r} {shape}"
        hint = "Choose a smaller --group-size" if packing.group is not None else "Choose another type"
        if no_fallback:
            raise UnsafeFileError("E-QUANT-FALLBACK", None, why, expected=wanted, hint=hint)
        if not packed:
            raise UnsupportedError("E-QUANT-NOTHING", path, why, expected=wanted, hint=hint)
        graph.note("W-FALLBACK", f"{why}: stored as they are, since it needs {wanted}", unfit[0])
    if not packed:
        why = "nothing would be quantized: no linear layer has a float matrix named 'weight'"
        raise UnsupportedError("E-QUANT-NOTHING", path, why, hint="Write GGUF")

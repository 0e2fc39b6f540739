"""``hash``: content hashes of tensors and models, equal for equal values in any format."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from ...runtime.base.errors import Error, UsageError, printable
from ...runtime.ir.graph import Graph, Note
from ..cli import option_values, shared_options
from ..cluster import cluster_option
from ..console.output import current
from ..open.detect_format import refuse_unwritten

if TYPE_CHECKING:
    from ...runtime.tensor.stored_tensor import StoredTensor

GROUP = "Inspect and check"
EPILOG = """\b
Examples
  candle-convert hash model-dir/ model.gguf --canonical
  candle-convert hash model.safetensors --write model.sha256
  candle-convert hash converted.gguf --check model.sha256
"""


@click.command("hash", epilog=EPILOG)
@click.argument("paths", metavar="FILE...", nargs=-1, required=True, type=shared_options.PATH)
@click.option(
    "-c",
    "--check",
    metavar="MANIFEST",
    type=shared_options.PATH,
    help="Compare with a manifest: Ok, Changed, Missing, New.",
)
@click.option("--write", metavar="MANIFEST", type=shared_options.TEXT_OUT, help="Write the lines to a manifest file.")
@click.option("-f", "--force", is_flag=True, help="Replace an existing manifest.")
@click.option("--tensors", is_flag=True, help="One line per tensor, also for several FILEs.")
@click.option(
    "--canonical", is_flag=True, help="Use the names and layouts of the model's architecture, with values as f32."
)
@click.option("--file", "whole", is_flag=True, help="SHA-256 of the file bytes, like sha256sum.")
@shared_options.options(shared_options.READING, shared_options.PROGRESS, cluster_option.RUNS)
@cluster_option.connected
def COMMAND(paths: tuple[str, ...], **values: Any) -> int:  # noqa: N802
    """Print the content hash of models, and of each tensor of one.

    The hash covers names, dtypes, shapes and values, so it is the same in every format and sharding. With --canonical
    it covers the weights by the names and layouts of their architecture, and is the same for a Hugging Face directory
    and the GGUF file converted from it. This is the default for several FILEs with different naming conventions. A
    manifest holds a line 'sha256  name' for each tensor (with --file: each file).
    """
    from ..compare import manifest

    if (values["check"] or values["write"]) and len(paths) > 1 and not values["whole"]:
        hint = "Use one FILE, or pass --file"
        raise UsageError("E-OPTION", None, "a tensor manifest covers one model", hint=hint)
    wanted = None if values["check"] is None else manifest.read(values["check"])
    weights, canonical = ({}, False) if values["whole"] else _weights(paths, values)
    if values["cluster"] is not None and not values["whole"]:
        models = _hashed_by_workers(weights, canonical, values)
    else:
        models = {path: _hashed(tensors, values) for path, tensors in weights.items()}
    lines = _files(paths, values) if values["whole"] else dict(next(iter(models.values())))
    combined = {} if values["whole"] else _combined(models)
    verdicts = [] if wanted is None else manifest.compare(wanted, lines)
    same = all(verdict.status == "Ok" for verdict in verdicts)
    out = current()
    if values["write"] is not None:
        _write(values["write"], manifest.write(lines), values["force"])
    if wanted is not None:
        for verdict in verdicts:
            out.say(f"{printable(verdict.name)}  {verdict.status}")
    elif values["whole"]:
        _say(lines)
    else:
        for path, hashes in models.items():
            if len(models) == 1 or values["tensors"]:
                _say(hashes)
            _say({path: combined[path]})
    out.emit(
        {
            "inputs": list(paths),
            "canonical": canonical,
            "hashes": [
                {"path": path, "content_hash": combined[path], "tensors": hashes} for path, hashes in models.items()
            ],
            "files": lines if values["whole"] else {},
            "check": [{"name": verdict.name, "status": verdict.status} for verdict in verdicts],
        },
        ok=same,
    )
    return 0 if same else 1


def _say(hashes: dict[str, str]) -> None:
    for name, sha256 in hashes.items():
        current().say(f"{sha256}  {printable(name)}")


def _weights(paths: tuple[str, ...], values: dict[str, Any]) -> tuple[dict[str, dict[str, StoredTensor]], bool]:
    """The tensors of every model, and whether they go by the names of its architecture rather than by the file's own.

    They do where that is asked for, and where the names of several files follow different conventions.
    """
    from ...runtime.passes.weights.collect import collect_weights
    from ..compare.canonical_hash import canonical_weights
    from ..compare.match_tensors import two_conventions

    def opened(path: str, **how: bool) -> Graph:
        graph = option_values.open_input(path, values, upgraded=False, parts=True, **how)
        refuse_unwritten(graph)
        return graph

    def canonical() -> dict[str, dict[str, StoredTensor]]:
        return {path: canonical_weights(opened(path)) for path in paths}

    if values["canonical"]:
        return canonical(), True
    stored = {path: collect_weights(opened(path, dequantized=False)) for path in paths}
    first, *others = stored.values()
    if values["check"] or values["write"] or not any(two_conventions(first, other) for other in others):
        return stored, False
    try:
        found = canonical()
    except Error as error:
        why = f"the tensor names follow two conventions, and {error.message}: the hashes cannot be compared"
        current().warn([Note("W-HASH-NAMES", None, why)])
        return stored, False
    current().warn(
        [Note("W-HASH-NAMES", None, "the tensor names follow two conventions: hashed as with --canonical", event=True)]
    )
    return found, True


def _hashed(tensors: dict[str, StoredTensor], values: dict[str, Any]) -> dict[str, str]:
    from ..inspect.content_hash import tensor_hash

    progress = option_values.progress(values)
    progress.phase("hashing")
    progress.start(sum(tensor.nbytes for tensor in tensors.values()))
    try:
        return {name: tensor_hash(tensor, progress.advance) for name, tensor in tensors.items()}
    finally:
        progress.finish()


def _hashed_by_workers(
    weights: dict[str, dict[str, StoredTensor]], canonical: bool, values: dict[str, Any]
) -> dict[str, dict[str, str]]:
    from ..cluster.tensor_reports import hashes_on

    models = [cluster_option.opening(path, values) for path in weights]
    cluster_option.check(values["cluster"], [model.path for model in models])
    progress = option_values.progress(values)
    progress.phase("hashing")
    progress.start(sum(tensor.nbytes for tensors in weights.values() for tensor in tensors.values()))
    try:
        found = hashes_on(values["cluster"], models, list(weights.values()), canonical, progress.advance)
        return dict(zip(weights, found, strict=True))
    finally:
        progress.finish()


def _combined(models: dict[str, dict[str, str]]) -> dict[str, str]:
    from ..inspect.content_hash import combined_hash

    return {path: combined_hash(hashes) for path, hashes in models.items()}


def _files(paths: tuple[str, ...], values: dict[str, Any]) -> dict[str, str]:
    from ...runtime.tensor.file import Source
    from ..inspect.content_hash import file_sha256

    sizes = [Source(path).size for path in paths]
    progress = option_values.progress(values)
    progress.phase("hashing")
    if values["cluster"] is not None:
        cluster_option.check(values["cluster"], paths)
    progress.start(sum(sizes))
    try:
        if values["cluster"] is not None:
            from ..cluster.output_reports import file_hashes_on

            absolute = [os.path.abspath(path) for path in paths]
            found = file_hashes_on(values["cluster"], absolute, sizes, progress.advance)
            return dict(zip(paths, found, strict=True))
        return {path: file_sha256(path, progress.advance) for path in paths}
    finally:
        progress.finish()


def _write(path: str, text: str, force: bool) -> None:
    from ..console.atomic_replace import replacing

    with replacing(path, force=force) as file:
        file.write(text.encode("utf-8", "surrogateescape"))

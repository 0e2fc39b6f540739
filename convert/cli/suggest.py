"""Suggestions for misspelled commands and options, for those of other tools, and for swapped arguments."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable

import click

from ...runtime.base.errors import UsageError
from ...runtime.base.nearest_name import nearest
from ..open import hub
from ..open.repository_owner import repository_hint

NAME_MODEL = "Give the model as an argument: a file, a directory or hf://owner/repo"
TYPE_FIRST = "Use candle-convert quantize IN OUT TYPE, for example TYPE Q4_K_M"
NO_CODE = "Omit it: code from a model is never executed"
FOREIGN = {
    # llama.cpp
    ("--model", "-m", "--model-path", "--hf-repo", "-hf", "-hfr", "--remote", "--infile"): NAME_MODEL,
    ("--hf-file", "-hff"): "Use hf://owner/repo/FILE",
    ("--n-gpu-layers", "-ngl"): "Use --device cuda --gpu-layers N",
    ("--split-max-tensors",): "Use --shard-tensors N",
    ("--mmproj",): "Use the directory or hf:// repository that holds the whole model",
    ("--model-name",): "Use --metadata general.name=NAME",
    ("--ftype",): "Use --dtype for f32, f16, bf16, or --quantize TYPE",
    ("--vocab-only",): "Use candle-convert tokenizer export IN OUT.gguf",
    (
        "--no-lazy",
        "--use-temp-file",
        "--bigendian",
        "--no-mmap",
        "--mlock",
    ): "Omit it: tensors are always streamed, and files are little-endian",
    ("--print-supported-models",): "Use candle-convert models list",
    ("--dump-config", "--verbose"): "Use candle-convert inspect FILE",
    (
        "--sha256",
        "--xxh64",
        "--sha1",
        "--uuid",
    ): "Use candle-convert hash FILE, or hash --file for the SHA-256 of the file's bytes",
    ("--merge",): "Use candle-convert merge FIRST-SHARD OUT",
    ("--predict", "--max-length"): "Use -n N (--max-tokens)",
    ("--ctx-size", "--n-ctx", "--max-model-len"): "Use -c N (--context)",
    ("--file",): "Use -p - and send the text to standard input",
    ("--interactive", "-i", "--conversation", "-cnv"): "Omit -p: on a terminal, generate then starts a conversation",
    ("--output-file",): "Use -o FILE",
    # mlx-lm
    ("--hf-path",): f"{NAME_MODEL}. For mlx_lm's -q use --quantize TYPE; -q is --quiet here",
    ("--mlx-path",): "Give the output as the argument OUT, or with -o",
    ("--q-bits", "--q-group-size", "--q-mode", "--quant-predicate"): TYPE_FIRST,
    ("--upload-repo", "--push-to-hub"): "Use `hf upload REPO FILE` afterwards",
    ("--trust-remote-code",): NO_CODE,
    # Optimum and ONNX Runtime
    ("--onnx-model", "--input-model", "--model-name-or-path"): NAME_MODEL,
    ("--output-model", "--output-dir", "--outdir", "--save-as"): "Give the output as the argument OUT, or with -o",
    (
        "--arm64",
        "--avx2",
        "--avx512",
        "--avx512-vnni",
        "--ppc64le",
        "--tensorrt",
    ): "Use candle-convert quantize model.onnx out.onnx int8",
    (
        "--optimize",
        "-O",
        "-O1",
        "-O2",
        "-O3",
        "-O4",
        "--optimization-level",
    ): "Use candle-convert graph simplify model.onnx out.onnx",
    (
        "--task",
        "--framework",
        "--library-name",
        "--monolith",
        "--no-post-process",
        "--pad-token-id",
    ): "Omit it: the task is detected from the model",
    ("--cache-dir",): "Set HF_HOME",
    ("--calibration-method",): "Use --method minmax|entropy|percentile|mse",
    ("--nodes-to-exclude",): "Use --exclude-nodes RE",
    ("--nodes-to-quantize",): "Use --nodes RE",
    ("--bits", "--quantization", "--quantize-to"): TYPE_FIRST,
    ("--save-as-external-data", "--use-external-data-format"): "Use --external-data always",
    ("--target-opset", "--opset-version"): "Use --opset N",
    ("--max-shard-size-gb",): "Use --shard-size 5GB",
    ("--overwrite", "--yes", "-y"): "Use -f (--force) to replace an existing output",
    ("--precision", "--compute-type", "--torch-dtype", "--fp16", "--bf16", "--half"): "Use --dtype f16 or --dtype bf16",
    ("--check-n", "--check", "--atol", "--validate"): "Use --verify full, or candle-convert verify SRC DST",
}
"""Options of other tools, and what does the same here."""
HINTS = {option: hint for options, hint in FOREIGN.items() for option in options}


def explain(error: click.ClickException, words: Iterable[str]) -> tuple[click.ClickException, str | None]:
    """The error, and what to type instead of an option of another tool, in place of click's suggestions; None where
    there is nothing to add.

    Args:
        words: of the command line; click reads ``-ngl`` of llama.cpp as ``-n gl``.
    """
    if isinstance(error, click.BadParameter) and not isinstance(error, click.MissingParameter):
        return error, next(
            (HINTS[word] for word in words if word in HINTS and len(word) > 2 and not word.startswith("--")), None
        )
    if not isinstance(error, click.NoSuchOption):
        return error, None
    name = error.option_name.replace("_", "-")
    if name not in HINTS or name in (error.possibilities or ()):
        return error, None
    return click.NoSuchOption(error.option_name, ctx=error.ctx), HINTS[name]


def is_path(word: str) -> bool:
    """Whether a first word is meant for a model rather than for a command: it exists, or is written like a path or an
    address."""
    return word.startswith("-") or hub.is_uri(word) or os.path.lexists(word) or any(mark in word for mark in "/\\.:")


def refuse_command(word: str, known: Collection[str], *, alone: bool = True) -> None:
    """Raise UsageError for a first word that names neither a command nor a file; one that is not `alone` may be the
    name of a model on the hub."""
    found = nearest(word, known)
    hint = f"Did you mean candle-convert {found}?" if found is not None else "candle-convert --help lists the commands"
    if found is None and not alone and (repository := repository_hint(word)) is not None:
        hint = f"{repository}; {hint}"
    raise UsageError("E-COMMAND-NAME", None, f"{word!r} is neither a command nor a file", hint=hint)


def refuse_alone(path: str) -> None:
    """Raise UsageError for a model that is the only word: the output is missing."""
    why = f"missing argument OUT after {path}"
    raise UsageError("E-OUT-MISSING", None, why, hint=f"To show its contents use candle-convert inspect {path}")


def refuse_order(source: str, output: str, type_name: str | None, types: Iterable[str]) -> None:
    """UsageError for arguments of ``quantize`` that lack OUT or stand in another order; `types` are the names of
    types."""
    known = list(types)

    def is_type(word: str | None) -> bool:
        return word is not None and word.lower() in known and not os.path.lexists(word)

    line = "Use candle-convert quantize IN OUT TYPE"
    if is_type(source):
        named = [word for word in (output, type_name) if word]
        why = f"TYPE must be last, but {source} is first"
        raise UsageError("E-OUT-ORDER", None, why, hint=f"{line}: {' '.join(['quantize', *named, source])}")
    if type_name is not None and is_type(output) and not is_type(type_name):
        why = f"TYPE must be last, but {output} is before OUT"
        raise UsageError("E-OUT-ORDER", None, why, hint=f"{line}: quantize {source} {type_name} {output}")
    bare = not os.path.splitext(output)[1] and not os.path.lexists(output) and os.sep not in output
    meant = output if is_type(output) else nearest(output, known) if bare else None
    if type_name is None and meant is not None:
        stem, suffix = os.path.splitext(source.rstrip("/").rpartition("/")[2])
        name = f"{stem}-{meant.upper()}{suffix if suffix == '.onnx' else '.gguf'}"
        hint = f"Use candle-convert quantize {source} {name} {meant.upper() if meant != output else output}"
        why = f"missing argument OUT: {output!r} {'is' if is_type(output) else 'looks like'} a type"
        raise UsageError("E-OUT-MISSING", None, why, hint=hint)

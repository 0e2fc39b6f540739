"""Hugging Face hub: resolves ``hf://owner/repo[@revision][/file]`` to a path in the cache of huggingface_hub."""

from __future__ import annotations

import contextlib
import glob
import os
import re
from collections.abc import Iterator
from pathlib import Path

from ...runtime.base.errors import FileAccessError, UsageError
from ...runtime.plugin.optional_package import optional_package

_URI = re.compile(r"hf://(?P<repo>[\w.-]+/[\w.-]+)(?:@(?P<revision>[\w.-]+))?(?:/(?P<file>.+))?")
MODEL_FILES = (
    "*.safetensors", "*.safetensors.index.json", "*.json", "*.txt", "*.model", "*.spm", "*.jinja", "*.md", "*.tiktoken",
)  # fmt: skip
INDEX = ".index.json"
SHARD = re.compile(r"-\d{5}-of-(\d{5})\.gguf$")
FALLBACK = ("*.bin", "*.bin.index.json", "*.pth", "*.pt", "*.gguf", "*.npz")


def is_uri(path: str | os.PathLike[str]) -> bool:
    """Whether it names something on the hub."""
    return isinstance(path, str) and path.startswith("hf://")


def absolute(path: str) -> str:
    """A path that means the same in every process; addresses of the hub do."""
    return path if is_uri(path) else os.path.abspath(path)


def folder_files(uri: str, revision: str | None = None) -> dict[str, str]:
    """The addresses, by name, of the other files in the folder of a hub address's file; empty for a repository, and
    where the hub's client is offline. FileAccessError if the repository cannot be listed."""
    match = _URI.fullmatch(uri)
    if match is None or match["file"] is None:
        return {}
    folder, slash, own = match["file"].rpartition("/")
    with hub_errors(uri, match["repo"]):
        if optional_package("huggingface_hub.constants", "hf://").HF_HUB_OFFLINE:
            return {}
        paths = [path.rpartition("/") for path in _listed(match["repo"], match["revision"] or revision)]
    start = f"{uri[: match.start('file')]}{folder}{slash}"
    return {name: start + name for parent, _, name in paths if parent == folder and name != own}


def _listed(repo: str, revision: str | None) -> list[str]:
    """The paths of a repository's files, by one request: the client repeats requests for its tree for 25 s."""
    client = optional_package("huggingface_hub", "hf://").HfApi()
    return [file.rfilename for file in client.model_info(repo, revision=revision).siblings or ()]


@contextlib.contextmanager
def hub_errors(uri: str, repo: str) -> Iterator[None]:
    """Raises FileAccessError for errors of the hub's client."""
    errors = optional_package("huggingface_hub.errors", "hf://")
    kinds = (errors.HTTPError, errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled, OSError, ValueError)
    try:
        yield
    except kinds as error:
        reason = str(error).strip().split("\n")[0]
        hint = (
            "Check the name, the network and HF_TOKEN; to work offline, "
            f"run `hf download {repo}` while there is a network"
        )
        raise FileAccessError("E-HUB-FETCH", None, f"{uri} cannot be downloaded: {reason}", hint=hint) from error


def resolve(uri: str, revision: str | None = None, offline: bool = False) -> Path:
    """The local file or snapshot folder of a hub address, downloaded into huggingface_hub's cache unless it is there.

    Safetensors are preferred: pickles and other formats are fetched only from repositories without them.
    """
    match = _URI.fullmatch(uri)
    if match is None or ".." in (match["file"] or "").split("/"):
        why = f"{uri!r} is not hf://owner/repo[@revision][/file]"
        raise UsageError("E-HUB-URI", None, why, hint="For example hf://owner/repo/model.safetensors")
    huggingface_hub = optional_package("huggingface_hub", "hf://")
    repo, file, revision = match["repo"], match["file"], match["revision"] or revision
    with hub_errors(uri, repo):
        if file is None:
            return _snapshot(repo, revision, offline)
        if file.endswith(INDEX) or SHARD.search(file):
            return _fetched(repo, revision, offline, [file, _siblings(file)]) / file
        return Path(huggingface_hub.hf_hub_download(repo, file, revision=revision, local_files_only=offline))


def _snapshot(repo: str, revision: str | None, offline: bool) -> Path:
    from .model_files import MODEL_INDEX

    folder = _fetched(repo, revision, offline, [MODEL_INDEX])
    if (folder / MODEL_INDEX).is_file():
        return folder if offline else _with_first_stage(_pipeline(repo, revision, folder))
    folder = _fetched(repo, revision, offline, list(MODEL_FILES))
    if not any(folder.glob("*.safetensors")):
        folder = _fetched(repo, revision, offline, [*MODEL_FILES, *FALLBACK])
    if not any(next(folder.glob(pattern), None) for pattern in (MODEL_FILES[0], *FALLBACK)):
        raise FileNotFoundError(f"no weights of the model in {folder}")
    return folder


def _with_first_stage(folder: Path) -> Path:
    """The folder of a pipeline, after the repository of its first stage was fetched, where the pipeline has one."""
    from .connected_pipelines import first_of

    first = first_of(folder)
    if first is not None:
        _snapshot(first, None, False)
    return folder


def _pipeline(repo: str, revision: str | None, folder: Path) -> Path:
    """The folder of a repository of diffusers, with the files that its pipeline needs."""
    from .connected_pipelines import cards_of
    from .model_files import needed_files

    errors = optional_package("huggingface_hub.errors", "hf://")
    try:
        names = _listed(repo, revision)
    except (errors.HTTPError, errors.OfflineModeIsEnabled, OSError):  # then what is cached is looked up below
        names = [path.relative_to(folder).as_posix() for path in folder.rglob("*")]
    wanted = [*needed_files(folder, names), *cards_of(folder)]
    return _fetched(repo, revision, False, [glob.escape(name) for name in wanted])


def _fetched(repo: str, revision: str | None, offline: bool, patterns: list[str]) -> Path:
    import huggingface_hub

    return Path(
        huggingface_hub.snapshot_download(repo, revision=revision, local_files_only=offline, allow_patterns=patterns)
    )


def _siblings(file: str) -> str:
    """A pattern for the files that are read together with an index or one shard of a GGUF model."""
    if file.endswith(INDEX):
        stem, dot, suffix = file.removesuffix(INDEX).rpartition(".")
        return f"{stem}-*{dot}{suffix}"
    return SHARD.sub(r"-*-of-\1.gguf", file)

"""The Hugging Face hub: ``hf://owner/repo[@revision][/file]`` as a local path, through huggingface_hub and its cache."""

from __future__ import annotations

import os
import re
from pathlib import Path

from ..runtime.errors import FileAccessError, UnsupportedError, UsageError

_URI = re.compile(r"hf://(?P<repo>[\w.-]+/[\w.-]+)(?:@(?P<revision>[\w.-]+))?(?:/(?P<file>.+))?")
WANTED = ("*.safetensors", "*.safetensors.index.json", "*.json", "*.txt", "*.model", "*.jinja", "*.md", "*.tiktoken")
FALLBACK = ("*.bin", "*.bin.index.json", "*.pth", "*.pt", "*.gguf", "*.npz")


def is_uri(path: str | os.PathLike[str]) -> bool:
    """Whether it names something on the hub."""
    return isinstance(path, str) and path.startswith("hf://")


def resolve(uri: str, revision: str | None = None, offline: bool = False) -> Path:
    """The local file or snapshot folder of a hub address, downloaded into huggingface_hub's cache unless it is there.

    Safetensors are preferred: pickles and other formats are fetched only from repositories without them.
    """
    match = _URI.fullmatch(uri)
    if match is None:
        raise UsageError("E-HUB-URI", None, f"{uri!r} is not hf://owner/repo[@revision][/file]")
    try:
        import huggingface_hub
        from huggingface_hub import errors
    except ImportError as error:
        raise UnsupportedError("E-HUB-EXTRA", None, "hf:// needs huggingface_hub", hint="pip install 'candle-convert[hub]'") from error
    revision = match["revision"] or revision
    try:
        if match["file"]:
            return Path(huggingface_hub.hf_hub_download(match["repo"], match["file"], revision=revision, local_files_only=offline))
        return _snapshot(match["repo"], revision, offline)
    except (errors.HfHubHTTPError, errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled, OSError, ValueError) as error:
        reason = str(error).strip().split("\n")[0]
        hint = "Check the name, the network, HF_TOKEN and --offline"
        raise FileAccessError("E-HUB-FETCH", None, f"{uri} cannot be had: {reason}", hint=hint) from error


def _snapshot(repo: str, revision: str | None, offline: bool) -> Path:
    import huggingface_hub

    folder = Path(huggingface_hub.snapshot_download(repo, revision=revision, local_files_only=offline, allow_patterns=list(WANTED)))
    if not any(folder.glob("*.safetensors")):
        folder = Path(huggingface_hub.snapshot_download(repo, revision=revision, local_files_only=offline, allow_patterns=[*WANTED, *FALLBACK]))
    return folder

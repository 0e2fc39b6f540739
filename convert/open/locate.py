"""Model location: a local path or ``hf://owner/repo``; suggests the hf:// address for other spellings."""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import unquote

from ...runtime.base.errors import FileAccessError, UsageError
from ...runtime.base.nearest_name import nearest
from ..console.stdio import STREAM
from . import hub
from .detect_format import by_suffix
from .repository_owner import repository_hint

LINK = re.compile(r"(?:https?:)?/*(?P<host>[\w.-]+\.[a-z]{2,})(?::\d+)?(?P<path>/[^?#]*)?(?:[?#].*)?", re.IGNORECASE)
HOSTS = frozenset(("huggingface.co", "www.huggingface.co", "hf.co", "hf-mirror.com"))
PAGES = frozenset(("resolve", "blob", "tree", "raw"))
"""Words before the revision in the address of a file or folder."""
OTHER_REPOSITORIES = {"datasets": "data sets", "spaces": "Spaces"}
REPOSITORY = re.compile(
    r"(?P<repo>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(?::(?P<tag>[\w.-]+))?(?:@(?P<revision>[\w.-]+))?"
)
WEB = re.compile(r"(?:https?:/|(?:www\.)?huggingface\.co/|hf\.co/)", re.IGNORECASE)


def located(path: str | os.PathLike[str], revision: str | None = None, offline: bool = False) -> Path:
    """The local file or folder of a model; what ``hf://`` names is downloaded into the hub's cache.

    Raises:
        UsageError: it is a web link or standard input; the hint holds the hf:// address or the command to use.
        FileAccessError: no such file, with the nearest name or the hf:// address as the hint; or the hub cannot be
            reached.
    """
    text = os.fspath(path)
    if hub.is_uri(text):
        return hub.resolve(text, revision, offline)
    try:
        os.lstat(text)
    except FileNotFoundError:
        refuse_missing(text)
    except (OSError, ValueError):  # too long, below a file, with a NUL: opening says what is wrong
        pass
    return Path(text)


def refuse_missing(text: str) -> None:
    """Raise the error for a path that does not exist; a name with a pattern of shards or a broken parent included."""
    if text == STREAM:
        hint = "Save it to a file first: tensors are read at offsets"
        raise UsageError("E-IN-STREAM", None, "a model cannot be read from standard input", hint=hint)
    if WEB.match(text) and (match := LINK.fullmatch(text)) is not None:
        raise _link(text, match)
    raise FileAccessError("E-IO-MISSING", text, "no such file or directory", hint=_meant(text))


def _link(text: str, match: re.Match[str]) -> UsageError:
    address, revision = _address(match)
    if address is None:
        other = next((what for part, what in OTHER_REPOSITORIES.items() if f"/{part}/" in text), None)
        hint = (
            f"hf:// reads model repositories, not {other}; download the file first"
            if other
            else "Download the file and use the local copy"
        )
        return UsageError("E-IN-LINK", text, "links are not opened", hint=hint)
    more = f" --revision {revision}" if revision else ""
    return UsageError(
        "E-IN-LINK", text, "web links cannot be opened, only hf:// addresses", hint=f"Use {address}{more}"
    )


def _address(match: re.Match[str]) -> tuple[str | None, str | None]:
    """The hf:// address that a link stands for, and a revision that the address cannot hold; None for any other
    site."""
    parts = [unquote(part) for part in (match["path"] or "").split("/") if part]
    if match["host"].lower() not in HOSTS or len(parts) < 2 or parts[0] in OTHER_REPOSITORIES:
        return None, None
    owner, repo, *rest = parts
    if not REPOSITORY.fullmatch(f"{owner}/{repo}"):
        return None, None
    revision, file = "main", ""
    if len(rest) > 1 and rest[0] in PAGES:
        revision, file = (
            (rest[1], "/".join(rest[2:])) if rest[1] != "refs" else ("/".join(rest[1:4]), "/".join(rest[4:]))
        )
    outside = "/" in revision
    at = "" if revision == "main" or outside else f"@{revision}"
    return f"hf://{owner}/{repo}{at}{'/' + file if file else ''}", revision if outside else None


def _meant(text: str) -> str | None:
    """The hub's address of a name like OWNER/REPO, else the nearest name in the folder; None for the usual hint."""
    match = REPOSITORY.fullmatch(text)
    if match is not None and not os.path.isdir(text.partition("/")[0]) and by_suffix(text) is None:
        at = f"@{match['revision']}" if match["revision"] else ""
        address = f"hf://{match['repo']}{at}"
        if match["tag"]:
            return f"For the Hugging Face repository use {address}/FILE, where FILE is its {match['tag']} file"
        return f"For the Hugging Face repository use {address}"
    folder, name = os.path.split(text)
    try:
        found = nearest(name, sorted(os.listdir(folder or "."))[:10_000])
    except OSError:
        return None
    if found is not None:
        return f"Did you mean {os.path.join(folder, found)}?"
    return repository_hint(text)

"""Scan of TensorFlow graphs for operators that call Python, reach files or load libraries."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...runtime.contract.format import Finding
from ...runtime.tensor.file import Source
from ...runtime.tensor.storage_search import windows

DANGERS = {
    **dict.fromkeys(("PyFunc", "PyFuncStateless", "EagerPyFunc"), "calls Python"),
    **dict.fromkeys(
        ("ReadFile", "WholeFileReader", "WholeFileReaderV2", "MatchingFiles", "TextLineReader"), "reads files"
    ),
    **dict.fromkeys(("WriteFile", "PrintV2", "Save", "SaveSlices", "DebugIdentity", "WriteSummary"), "writes files"),
    **dict.fromkeys(("LoadLibrary", "LoadOpLibrary", "LoadDataset"), "loads a library or data"),
}
"""Operators that only a graph with other aims than computing uses; `SaveV2` and `RestoreV2`, which every SavedModel
has, are not among them."""
WINDOW, OVERLAP = 1 << 20, 64
_NODE = re.compile(
    b"|".join(rb"\x12%s%s(?=[\x1a\x22\x2a\x32])" % (re.escape(bytes([len(name)])), name.encode()) for name in DANGERS)
)
"""The field `op` of a NodeDef, with the beginning of the field after it."""
_TEXT = re.compile(rb'\bop\s*:\s*["\'](%s)["\']' % b"|".join(name.encode() for name in DANGERS))


def findings(source: Source) -> Iterator[Finding]:
    """A danger for the first use of every such operator."""
    told: set[str] = set()
    for start, data in windows(source, source.budget, WINDOW, OVERLAP):
        for match in (*_NODE.finditer(data), *_TEXT.finditer(data)):
            name = (match[1] if match.re is _TEXT else match[0][2:]).decode()
            if name not in told:
                told.add(name)
                yield Finding(
                    "E-SCAN-TENSORFLOW",
                    "danger",
                    f"the graph has an operator {name}, which {DANGERS[name]}",
                    start + match.start(),
                )

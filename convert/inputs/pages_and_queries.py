"""Models that take pages and queries: an argument is a page where there is such a file, else a query."""

from __future__ import annotations

import dataclasses

from . import pictures_and_texts

KIND = dataclasses.replace(
    pictures_and_texts.KIND, one="page or query", several="pages and queries", embed_options=("batch",), matrices=True
)

"""Text to text: translations, summaries and answers of encoder-decoders."""

from __future__ import annotations

from ....models.seq2seq.tasks import TEXT_TO_TEXT
from ..kind import Kind
from ..npm_packages import TEXT_FILES, TRANSFORMERS_JS

KIND = Kind((TEXT_TO_TEXT,), "Translate and rewrite text", TRANSFORMERS_JS, TEXT_FILES)

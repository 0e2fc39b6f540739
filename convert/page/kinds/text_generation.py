"""Text generation: a prompt that is continued, or a conversation where the model has a chat template."""

from __future__ import annotations

from ....runtime.contract.architecture import TEXT_GENERATION
from ..kind import Kind
from ..npm_packages import TEXT_FILES, TRANSFORMERS_JS

KIND = Kind((TEXT_GENERATION,), "Generate text", TRANSFORMERS_JS, TEXT_FILES)

"""Folders of the repository that tests read."""

from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
BENCHMARKS = REPOSITORY / "benchmarks"
DOCS = REPOSITORY / "docs"
EXAMPLES = REPOSITORY / "examples"
TESTS = REPOSITORY / "tests"
DEVICE_SCRIPTS = TESTS / "device_scripts"
VECTORS = TESTS / "builders" / "vectors"
"""Recorded results of other implementations, and the scripts that record them."""

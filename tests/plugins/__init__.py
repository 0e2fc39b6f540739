"""Pytest plugins of the suite, loaded by `addopts` in pyproject.toml."""

"""The rewriting engine: graph patterns, matching, replacement, dead code elimination and graph verification."""

"""Benchmarks of a model against other engines: each engine in a process of its own."""

"""Architectures, one file per family: which weights it has under which names, and how they make a graph."""

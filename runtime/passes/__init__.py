"""Passes: transformations of a graph, one file each."""

"""Inputs of models on the command line: texts, pictures and sounds.

A module that declares ``KIND`` tells how the commands `predict` and `embed` handle models that take what its name says.
"""

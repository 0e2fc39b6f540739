"""Runners of image models.

A module that declares ``PIPELINE`` uses models for the task of its name. ``OUTPUTS`` next to it tells the task of a
graph whose task nothing else states: sets of names of outputs, with the number of dimensions or None for any.
"""

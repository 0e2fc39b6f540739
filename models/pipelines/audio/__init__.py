"""Pipelines of audio models: transcription, codecs, synthesis, classification.

A module that declares ``PIPELINE`` uses models for the task of its name. ``SIGNATURES`` next to it tells the task of a
graph whose task nothing else states: pairs of inputs and outputs, with the number of dimensions or None for any.
"""

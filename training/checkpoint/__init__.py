"""Checkpoints: all that a run needs to go on where it was, in one safetensors file. Nothing in it is executed."""

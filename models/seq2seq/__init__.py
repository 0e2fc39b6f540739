"""Encoder-decoders: the decoder's net, tasks and runner, and one module per family."""

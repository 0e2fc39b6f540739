"""Opening models: a path, directory or hub address becomes one Graph."""

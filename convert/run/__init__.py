"""Running models from the command line: inputs, outputs, comparison with peers."""

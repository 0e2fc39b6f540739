"""The nouns and the engine: dtypes, tensors, graph, contracts, registries, errors, limits. Knows no concrete op, format or model."""

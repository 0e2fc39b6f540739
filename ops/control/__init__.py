"""Control flow: subgraphs that run on condition or repeatedly."""

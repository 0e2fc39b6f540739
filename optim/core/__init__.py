"""Base of optimizers: parameter groups, state, and the numbers of a step that are inputs of its plan."""

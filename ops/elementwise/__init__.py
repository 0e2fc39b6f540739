"""Element-wise operators: arithmetic, comparison, logic, activations."""

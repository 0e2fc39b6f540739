"""What operators share: shape rules, precision, costs, limits, window geometry, expressions."""

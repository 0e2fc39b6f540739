"""Rules that operators share: shapes, precision, costs, limits, window geometry, expressions."""

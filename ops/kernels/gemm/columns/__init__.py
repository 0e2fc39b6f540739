"""Products with one weight row per lane."""

"""Reductions along axes, ArgMax and ArgMin, cumulative sums."""

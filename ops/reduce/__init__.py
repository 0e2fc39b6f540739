"""Reductions along axes, and positions of extremes."""

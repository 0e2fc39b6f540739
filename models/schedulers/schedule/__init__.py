"""Noise schedules and updates that schedulers share."""

"""Options, noise schedules and updates that schedulers share."""

"""Reports for people: tables of layers and metrics, and drawn curves."""

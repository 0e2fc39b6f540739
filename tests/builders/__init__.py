"""Files, models and networks made for tests."""

"""Writing conversions: plan, stage, write, read back and publish."""

"""Inspection: tensor values, statistics, content hashes, graph summaries and drawings."""

"""Ranks: processes that compute one model together, their connections and the communicator of each."""

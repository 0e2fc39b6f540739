"""Operators between ranks: AllReduce, AllGather."""

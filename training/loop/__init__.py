"""Loops: the steps of a module as plans, what they log, optimizers, and the state that a run goes on from."""

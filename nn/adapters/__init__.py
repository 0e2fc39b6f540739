"""Adapters: small trained changes of the layers of a module that stays as it is."""

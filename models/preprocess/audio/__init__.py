"""Sounds as inputs of models: files, samples at the model's rate, and features made of them."""

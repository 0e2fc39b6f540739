"""Models that training.py trains, and the libraries that train them, one a module."""

"""CPU kernel library; registers no operator."""

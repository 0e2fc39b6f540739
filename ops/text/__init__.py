"""Text: strings in, strings or numbers out."""

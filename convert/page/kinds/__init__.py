"""Kinds of pages, one module each with a constant `KIND`; the module of the same name in `assets/kinds` is what the
browser runs."""

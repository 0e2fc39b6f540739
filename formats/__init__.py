"""File formats, one module each: bytes <-> Graph. The rest of the package uses only a module's `FORMAT`.

`containers/` holds what several formats are built of (zip archives, pickles). To add a format, write `formats/NAME.py`
with a `FORMAT = Format(name="NAME", ...)`; the command line, the tables and the tests over all formats discover it.
"""

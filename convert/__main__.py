"""``python -m candle_convert.convert``: the command line."""

from .cli import main

main()

"""``python -m candle_convert.convert``, and the program `candle-convert`."""

from __future__ import annotations

from .interrupts import answer, leave


def main() -> None:
    """The command line, which can be interrupted from its first import on."""
    answer(leave)
    from .cli import main

    main()


if __name__ == "__main__":
    main()

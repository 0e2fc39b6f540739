"""``python -m candle_convert.convert``, and the program `candle-convert`."""

from __future__ import annotations

import sys

from ..runtime.base.out_of_memory import shortage
from ..runtime.base.system_error import system_error
from .cli.supervisor import supervised
from .console.interrupt import answer, leave
from .console.standard_streams import guard


def main() -> None:
    """The command line, which can be interrupted from its first import on."""
    answer(leave)
    guard()
    supervised(_main)


def _main() -> None:
    try:
        from .cli.main import main
    except (ImportError, MemoryError, OSError) as error:
        found = shortage(error) or system_error(error)
        if found is None:
            raise
        print(f"✗ {found}", file=sys.stderr)
        sys.exit(found.exit_code)
    main()


if __name__ == "__main__":
    main()

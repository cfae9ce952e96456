"""The entry point of `keepworth` and of `python -m keepworth`."""

from __future__ import annotations

import sys


def run() -> None:
    """Runs the program. A hook is run without the command line, because it starts anew for each event of a host, which waits for
    it."""
    if sys.argv[1:2] == ["hook"]:
        from keepworth.serving import hook

        sys.exit(hook.run(sys.argv[2:]))
    try:
        from keepworth.cli.main import run as whole
    except KeyboardInterrupt:  # Ctrl-C while the program is still being read
        sys.exit(130)
    whole()

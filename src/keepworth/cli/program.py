"""`keepworth`, and `python -m keepworth`: where the program starts."""

from __future__ import annotations

import sys


def run() -> None:
    """A hook is started anew for each event of a host, which waits for it: it takes the short way, without the command line."""
    if sys.argv[1:2] == ["hook"]:
        from keepworth.serving import hook

        sys.exit(hook.run(sys.argv[2:]))
    try:
        from keepworth.cli.main import run as whole
    except KeyboardInterrupt:  # Ctrl-C while the program is still being read
        sys.exit(130)
    whole()

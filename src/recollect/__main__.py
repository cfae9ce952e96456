"""`python -m recollect` is `recollect`."""

from recollect.cli.main import run

run()

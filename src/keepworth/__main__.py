"""`python -m keepworth` is `keepworth`."""

from keepworth.cli.main import run

run()

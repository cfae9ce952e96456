"""`python -m keepworth` is `keepworth`."""

from keepworth.cli.program import run

run()

"""Programs that a test starts use the store that the test uses: Python imports this where its folder is on the path."""

from tests.memory import on_postgres

if on_postgres.wanted():
    on_postgres.redirect()

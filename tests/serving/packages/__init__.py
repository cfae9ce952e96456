"""Programs that are run by a Python that has the package in question."""

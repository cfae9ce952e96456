"""Logs of other programs, read for what they say of tasks and how they ended; one file for each family of formats."""

"""Environments, which react to an agent. Their observations and rewards depend on the actions alone."""

"""Worlds: what an agent acts in, the agents, the driver that runs them, and the tasks with their loaders and verifiers."""

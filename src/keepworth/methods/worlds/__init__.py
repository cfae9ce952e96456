"""Worlds, a file each: streams of tasks in an order, for memories that learn online."""

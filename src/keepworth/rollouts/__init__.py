"""Runs agents in environments: the driver with its batching and deadlines, and streams of tasks."""

"""Loaders of benchmarks, a file for each family of formats: tasks with a haystack, a question and the hidden key."""

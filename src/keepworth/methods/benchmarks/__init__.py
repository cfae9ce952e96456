"""Benchmarks, a file each: tasks with a haystack to remember, a question and the hidden key."""

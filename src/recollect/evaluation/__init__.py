"""Benchmarks, statistics and reports."""

"""Benchmarks of the statistics, verifiers and judges that other numbers rest on."""

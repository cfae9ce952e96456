"""The command line: parses, calls, prints, and does nothing else."""

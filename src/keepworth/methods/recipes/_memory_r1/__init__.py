"""The two roles of Memory-R1, and its demonstration."""

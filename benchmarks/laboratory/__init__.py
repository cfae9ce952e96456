"""Worlds in which a small language model has room to learn from reward, and what each objective makes of it."""

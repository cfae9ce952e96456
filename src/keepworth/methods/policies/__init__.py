"""Policies of memory: what is shown, and how reward changes it."""

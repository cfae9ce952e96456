"""Measurements of runs on several processes and machines."""

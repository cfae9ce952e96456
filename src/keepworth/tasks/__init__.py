"""Loaders, fixed splits, verifiers and text metrics: used by training and evaluation alike."""

"""Loaders, fixed splits, verifiers and text metrics, which training and evaluation share."""

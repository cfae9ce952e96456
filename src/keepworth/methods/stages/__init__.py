"""Stages of a search."""

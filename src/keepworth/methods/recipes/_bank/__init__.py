"""Shared code of the recipes for writers of bounded banks."""

"""Serving: what others reach over HTTP."""

"""Serving: what others reach over HTTP, and environments for trainers of others."""

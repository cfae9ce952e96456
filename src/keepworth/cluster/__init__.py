"""Rollout workers as actors of Ray, on this machine or on several hosts."""

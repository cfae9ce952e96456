"""Rollout workers and scorers as actors of Ray, on this machine or on several hosts."""

"""Keyers: what stands for a situation."""

from __future__ import annotations


def whole(goal: str, observation: str) -> str:
    """Goal and observation together (REMEMBERER's key, and a question's own text)."""
    return f"{goal} {observation}".strip()


def goal_only(goal: str, observation: str) -> str:
    """The task alone, as in Memento and ReMe: the same key at every step."""
    return goal or observation


def observation_only(goal: str, observation: str) -> str:
    """What is seen now: sub-routines that goals share get the same key."""
    return observation or goal

"""The recipe that is placed and killed here: short answers of a small model, and a reward that takes some computing."""

from __future__ import annotations

from typing import Any

ROUNDS = 20_000
"""Of a loop in Python, for each answer: some milliseconds that keep Python's lock."""

tasks = [{"prompt": f"{number} + {number} =", "answer": str(2 * number)} for number in range(400)]


def reward(answer: str, row: dict[str, Any]) -> float:
    """The share of characters with an even number; a model of random weights can learn it."""
    number = sum(map(ord, answer))
    for _ in range(ROUNDS):
        number = (1103515245 * number + 12345) % 2**31
    assert number >= 0
    return sum(ord(each) % 2 == 0 for each in answer) / max(1, len(answer))


settings = {"format": "plain", "max_tokens": 12, "checkpoint_every": 1, "learning_rate": 1e-2}

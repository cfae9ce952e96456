"""Verifiers: the functions that a task may name to have an answer scored."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from keepworth.episodes.episode import Task
from keepworth.episodes.errors import require_known
from keepworth.tasks import reasoning_gym
from keepworth.tasks.arithmetic import expression, math_verify, numeric
from keepworth.tasks.metrics import exact_match, token_f1
from keepworth.tasks.operations import operation
from keepworth.tasks.strings import same_words

Verifier = Callable[[str, Sequence[str]], float]

VERIFIERS: Mapping[str, Verifier] = MappingProxyType(
    {
        "token_f1": token_f1,
        "exact_match": exact_match,
        "operation": operation,
        "numeric": numeric,
        "expression": expression,
        "math_verify": math_verify,
        "same_words": same_words,
    }
)

TASK_VERIFIERS: Mapping[str, Callable[[Task, str], float]] = MappingProxyType(
    {reasoning_gym.SOURCE: reasoning_gym.score}
)
"""Those that need the whole task, because an answer key of text says too little."""


def verifier(name: str) -> Verifier:
    """The function (prediction, answers) -> reward in [0, 1] of that name. UnknownName, with the nearest one,
    otherwise."""
    return VERIFIERS[require_known("verifier", name, VERIFIERS)]


def verify(task: Task, prediction: str) -> float:
    """The reward of `prediction` on `task`, in [0, 1], by the verifier that the task names."""
    if task.verifier in TASK_VERIFIERS:
        return TASK_VERIFIERS[task.verifier](task, prediction)
    return verifier(task.verifier)(prediction, task.answers)

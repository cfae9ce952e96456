"""Verifiers: how an answer is judged. The functions that a task may name, and the reading of numbers that some need."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from importlib import import_module
from types import MappingProxyType

from keepworth.episodes.episode import Task
from keepworth.episodes.errors import UnknownName
from keepworth.episodes.extras import require
from keepworth.tasks import reasoning_gym
from keepworth.tasks.metrics import exact_match, token_f1
from keepworth.tasks.operations import operation


def last_value(text: str) -> str:
    """What stands after the last `=` of the first line, blanks collapsed: the value of the last step."""
    lines = text.strip().splitlines()
    return " ".join(lines[0].rpartition("=")[2].split()) if lines else ""


def same_words(prediction: str, golds: Sequence[str]) -> float:
    """1.0 if the value at the end of `prediction` is a gold's words in order. Nothing is normalised away but blanks."""
    return float(last_value(prediction) in {" ".join(gold.split()) for gold in golds})


# Numbers as answers: read out of text exactly, compared exactly.
#
# Strict on purpose: a reward that says yes to anything that looks right is learned from (a list of guesses, say). Where
# both can read an answer, `numeric` agrees with the package math-verify; the tests check that where it is installed.


_NUMBER = re.compile(
    r"(?<![\w.,])[-−]?\s?[$€£]?\s?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:\s?/\s?[1-9]\d*)?%?(?![\w]|[.,/]\d)"
    r"|(?<![\w.,])[-−]?\s?[$€£]?\s?\.\d+%?(?![\w]|[.,/]\d)"
)
_UNITS = re.compile(r"(?<=\d)(?=[A-Za-z])")
_OPERATORS: Mapping[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_LONGEST = 200
"""Characters of an expression; digits of what it comes to."""


def numeric(prediction: str, golds: Sequence[str]) -> float:
    """1.0 if the answer in `prediction` is the number of one of `golds`, as an exact fraction; else 0.0.

    The answer is the only number of the last line that has one; after a marker (`####`, `=`, `answer:`, `\\boxed{}`) it is
    the only number behind the last marker. Two different numbers there are no answer. Thousands separators, currency
    signs, units, percent signs (dropped), fractions and decimals are read. Never raises on a prediction."""
    found = number_in(prediction)
    return float(found is not None and any(found == _gold(gold) for gold in golds))


def expression(prediction: str, golds: Sequence[str]) -> float:
    """1.0 if the first line of `prediction`, computed, is the number of one of `golds`; else 0.0.

    The line is an expression of numbers, + - * / and brackets, up to an `=` if there is one. A number alone is an
    expression too. Never raises on a prediction."""
    lines = prediction.strip().splitlines()
    found = computed(lines[0].split("=")[0]) if lines else None
    return float(found is not None and any(found == _gold(gold) for gold in golds))


def math_verify(prediction: str, golds: Sequence[str]) -> float:
    """1.0 if the package math-verify finds one of `golds` in `prediction`: numbers, fractions, sets, LaTeX; else 0.0.

    Errors: MissingExtra where the package is not installed."""
    require("math", "The verifier math_verify")
    package = import_module("math_verify")
    # Its own limit of time works by signals, which only the main thread may have: whoever runs rewards limits them.
    found = package.parse(prediction, parsing_timeout=None)
    return float(
        any(package.verify(package.parse(gold, parsing_timeout=None), found, timeout_seconds=None) for gold in golds)
    )


def number_in(text: str) -> Fraction | None:
    """The one number that `text` gives as its answer; None where there is none, or more than one."""
    after = re.split(r"####|=|(?i:answer(?:\s+is)?\s*:?)|\\boxed\{", text)[-1] if _marked(text) else text
    lines = [line for line in after.splitlines() if _NUMBER.search(_spaced(line))]
    if not lines:
        return None
    line = lines[0] if _marked(text) else lines[-1]
    values = {_value(found) for found in _NUMBER.findall(_spaced(line))}
    return values.pop() if len(values) == 1 else None


def computed(text: str) -> Fraction | None:
    """The exact value of an arithmetic expression, or None: no names, no powers, nothing that could run for long."""
    cleaned = re.sub(r"(?<=\d),(?=\d{3}\b)|[$€£%]", "", text).replace("×", "*").replace("÷", "/").replace("−", "-")
    if not cleaned.strip() or len(cleaned) > _LONGEST:
        return None
    try:
        value = _evaluated(ast.parse(cleaned.strip(), mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return None
    return value if len(str(value.numerator)) + len(str(value.denominator)) <= _LONGEST else None


def shown(value: Fraction) -> str:
    """A number as people write it: `3`, `2.5`, `1/3`."""
    if value.denominator == 1:
        return str(value.numerator)
    decimal = f"{float(value):.10g}"
    return decimal if Fraction(decimal) == value else f"{value.numerator}/{value.denominator}"


def _evaluated(node: ast.expr) -> Fraction:
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_evaluated(node.left), _evaluated(node.right))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        inner = _evaluated(node.operand)
        return -inner if isinstance(node.op, ast.USub) else inner
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return Fraction(str(node.value))
    raise ValueError("not arithmetic")


def _marked(text: str) -> bool:
    return re.search(r"####|=|(?i:answer)|\\boxed\{", text) is not None


def _spaced(line: str) -> str:
    """`5kg` as `5 kg`, so that a unit does not hide its number."""
    return _UNITS.sub(" ", line)


def _value(text: str) -> Fraction:
    plain = re.sub(r"[\s,$€£%]", "", text.replace("−", "-"))
    return Fraction(plain)


def _gold(text: str) -> Fraction:
    found = number_in(text)
    if found is None:
        raise ValueError(f"the gold answer {text!r} is not one number: it cannot be verified as one")
    return found


# By name.


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
    if name not in VERIFIERS:
        raise UnknownName("verifier", name, VERIFIERS)
    return VERIFIERS[name]


def verify(task: Task, prediction: str) -> float:
    """The reward of `prediction` on `task`, in [0, 1], by the verifier that the task names."""
    if task.verifier in TASK_VERIFIERS:
        return TASK_VERIFIERS[task.verifier](task, prediction)
    return verifier(task.verifier)(prediction, task.answers)

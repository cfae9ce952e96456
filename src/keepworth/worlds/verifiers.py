"""Verifiers: the functions that a task may name to judge an answer, and the parsing of numbers that some need."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from fractions import Fraction
from importlib import import_module
from types import MappingProxyType

from keepworth.base.errors import require_known
from keepworth.base.extras import require
from keepworth.base.metrics import abstains, exact_match, normalise, token_f1
from keepworth.records.episode import Task
from keepworth.records.operations import operation


def last_value(text: str) -> str:
    """Returns the text after the last `=` of the first line, with blanks collapsed: the value of the last step."""
    lines = text.strip().splitlines()
    return " ".join(lines[0].rpartition("=")[2].split()) if lines else ""


def same_words(prediction: str, golds: Sequence[str]) -> float:
    """Returns 1.0 if the value at the end of `prediction` equals a gold's words in order. Only blanks are normalised."""
    return float(last_value(prediction) in {" ".join(gold.split()) for gold in golds})


_SIGNS = re.compile(r"[,./\-_*^()]")


def contains_answer(prediction: str, golds: Sequence[str]) -> float:
    """Returns 1.0 if one of `golds` occurs in `prediction` as whole words, ignoring letter case and the signs , . / - _ * ^ ( ).

    The Berkeley Function-Calling Leaderboard scores memory by this rule (`agentic_checker`), except for an accepted string that
    begins or ends with another sign, such as `$49.99`, which its version never accepts."""
    text = _SIGNS.sub("", prediction).lower().replace("'", '"')
    wanted = (_SIGNS.sub("", gold).lower().replace("'", '"') for gold in golds)
    return float(any(re.search(rf"(?<!\w){re.escape(gold)}(?!\w)", text) for gold in wanted if gold.strip()))


# Numbers as answers: read out of text exactly, compared exactly.
#
# They are strict on purpose: a policy learns to exploit a reward that accepts anything which looks right (a list of guesses,
# say). Where both can read an answer, `numeric` agrees with the package math-verify; the tests check that where it is installed.


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
"""The most characters of an expression, and the most digits of its value."""


def numeric(prediction: str, golds: Sequence[str]) -> float:
    """Returns 1.0 if the answer in `prediction` is the number of one of `golds`, as an exact fraction; else 0.0.

    The answer is the only number of the last line that has one; after a marker (`####`, `=`, `answer:`, `\\boxed{}`) it is the
    only number behind the last marker. Two different numbers there are no answer. Thousands separators, currency signs, units,
    percent signs (dropped), fractions and decimals are read. Never raises on a prediction."""
    number = number_in(prediction)
    return float(number is not None and any(number == _gold(gold) for gold in golds))


def expression(prediction: str, golds: Sequence[str]) -> float:
    """Returns 1.0 if the first line of `prediction`, computed, is the number of one of `golds`; else 0.0.

    The line is an expression of numbers, + - * / and brackets, up to an `=` if there is one. A number alone is an expression too.
    Never raises on a prediction."""
    lines = prediction.strip().splitlines()
    value = evaluate_expression(lines[0].split("=")[0]) if lines else None
    return float(value is not None and any(value == _gold(gold) for gold in golds))


def math_verify(prediction: str, golds: Sequence[str]) -> float:
    """Returns 1.0 if the package math-verify finds one of `golds` in `prediction`: numbers, fractions, sets, LaTeX; else 0.0.
    Raises MissingExtra where the package is not installed."""
    require("math", "The verifier math_verify")
    package = import_module("math_verify")
    # Its own limit of time uses signals, which only the main thread may have; the caller of rewards limits their time.
    parsed = package.parse(prediction, parsing_timeout=None)
    return float(
        any(package.verify(package.parse(gold, parsing_timeout=None), parsed, timeout_seconds=None) for gold in golds)
    )


def number_in(text: str) -> Fraction | None:
    """Returns the one number that `text` gives as its answer; None where there is none, or more than one."""
    after = re.split(r"####|=|(?i:answer(?:\s+is)?\s*:?)|\\boxed\{", text)[-1] if _mark(text) else text
    lines = [line for line in after.splitlines() if _NUMBER.search(_spaced(line))]
    if not lines:
        return None
    line = lines[0] if _mark(text) else lines[-1]
    values = {_value(number) for number in _NUMBER.findall(_spaced(line))}
    return values.pop() if len(values) == 1 else None


def evaluate_expression(text: str) -> Fraction | None:
    """Returns the exact value of an arithmetic expression, or None: no names, no powers, nothing that could run for long."""
    cleaned = re.sub(r"(?<=\d),(?=\d{3}\b)|[$€£%]", "", text).replace("×", "*").replace("÷", "/").replace("−", "-")
    if not cleaned.strip() or len(cleaned) > _LONGEST:
        return None
    try:
        value = _evaluated(ast.parse(cleaned.strip(), mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return None
    return value if len(str(value.numerator)) + len(str(value.denominator)) <= _LONGEST else None


def format_number(value: Fraction) -> str:
    """Formats a number as people write it: `3`, `2.5`, `1/3`."""
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


def _mark(text: str) -> bool:
    return re.search(r"####|=|(?i:answer)|\\boxed\{", text) is not None


def _spaced(line: str) -> str:
    """Separates units from numbers, `5kg` to `5 kg`, so that a number is found before its unit."""
    return _UNITS.sub(" ", line)


def _value(text: str) -> Fraction:
    plain = re.sub(r"[\s,$€£%]", "", text.replace("−", "-"))
    return Fraction(plain)


def _gold(text: str) -> Fraction:
    number = number_in(text)
    if number is None:
        raise ValueError(f"the gold answer {text!r} is not one number: it cannot be verified as one")
    return number


# Answers of other forms: LaTeX, intervals of time, sets and lists.


_BLANK = re.compile(r"\\[,;:! ]|\\(?:left|right|displaystyle|quad|qquad)(?![A-Za-z])|~|\s+")
_UNIT = re.compile(r"\\(?:text|mathrm|mbox)\{[^{}]*\}\s*$|\^\{?\\circ\}?|\\?%|\\?\$")


def latex(prediction: str, golds: Sequence[str]) -> float:
    """Returns 1.0 if the answer in `prediction` is one of `golds` once both are normalised as LaTeX, or both are one number; else
    0.0.

    The answer is the content of the last `\\boxed{}`, else the text after the last marker (`####`, `answer is`, `=`), else the
    last line. Normalisation ignores blanks, sizes of brackets, units, degrees, dollar and percent signs, and other spellings of
    fractions and roots (the usual rules for MATH, Hendrycks et al., arXiv 2103.03874, appendix). Two spellings of one expression
    differ: `math_verify` accepts more."""
    answer = _latex_answer(prediction)
    forms = {_plain_latex(answer), _plain_latex(answer.rpartition("=")[2])} - {""}
    numbers = {_latex_number(form) for form in forms} - {None}
    return float(
        any(gold_form in forms or _latex_number(gold_form) in numbers for gold_form in map(_plain_latex, golds))
    )


def _latex_answer(text: str) -> str:
    boxed = [match.end() for match in re.finditer(r"\\f?boxed\s*\{", text)]
    if boxed:
        depth, start = 1, boxed[-1]
        for index in range(start, len(text)):
            depth += {"{": 1, "}": -1}.get(text[index], 0)
            if not depth:
                return text[start:index]
        return text[start:]
    marked = re.split(r"####|(?i:answer(?:\s+is)?\s*:?)", text)
    lines = [line for line in marked[-1].splitlines() if line.strip()]
    return (lines[0] if len(marked) > 1 else lines[-1]).strip().rstrip(".") if lines else ""


def _plain_latex(text: str) -> str:
    plain = re.sub(r"\\[dt]frac", r"\\frac", text.strip().strip("$").rstrip("."))
    plain = re.sub(r"\\frac\s*(\d)\s*(\d)", r"\\frac{\1}{\2}", re.sub(r"\\sqrt\s*(\w)", r"\\sqrt{\1}", plain))
    inside = re.fullmatch(r"\\(?:text|mathrm|mbox)\{([^{}]*)\}", plain)
    plain = inside[1] if inside else _UNIT.sub("", plain)
    plain = re.sub(r"(?<=\d),\\?!?(?=\d{3}\b)", "", plain)
    plain = re.sub(r"^[A-Za-z]\s*=\s*", "", _BLANK.sub("", plain))
    return re.sub(r"^(-?)\.", r"\g<1>0.", plain)


def _latex_number(plain: str) -> Fraction | None:
    """Returns the number that the whole text is, or None."""
    text = re.sub(r"\\frac\{(\d+)\}\{(\d+)\}", r"\1/\2", plain)
    return number_in(text) if _NUMBER.fullmatch(text) else None


_TIMESTAMP = re.compile(r"(?<!\d)(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d))?(?!\d)")


def interval_iou(prediction: str, golds: Sequence[str]) -> float:
    """Returns the overlap of two intervals of time: minutes in both, divided by minutes in either; the best over `golds`.

    An interval is two moments in ISO 8601, with any text between: `2020-04-01T00:00/2020-04-09T23:59`. Both ends are part of it;
    a day alone begins at 00:00 and ends at 23:59. A `prediction` with more or fewer moments than two scores 0."""
    predicted = _interval(prediction)
    if predicted is None:
        return 0.0
    shares = []
    for gold in golds:
        gold_interval = _interval(gold)
        if gold_interval is None:
            raise ValueError(f"the gold answer {gold!r} is not an interval START/END")
        common = max(
            0.0, (min(gold_interval[1], predicted[1]) - max(gold_interval[0], predicted[0])).total_seconds() / 60 + 1
        )
        lengths = sum((end - start).total_seconds() / 60 + 1 for start, end in (gold_interval, predicted))
        shares.append(common / (lengths - common))
    return max(shares, default=0.0)


def interval_match(prediction: str, golds: Sequence[str]) -> float:
    """Returns 1.0 if both ends are those of one of `golds`, to the minute; else 0.0."""
    return float(interval_iou(prediction, golds) == 1.0)


def _interval(text: str) -> tuple[datetime, datetime] | None:
    times = _TIMESTAMP.findall(text)
    if len(times) != 2:
        return None
    try:
        start, end = (
            datetime.fromisoformat(f"{day}T{minute or default}")
            for (day, minute), default in zip(times, ("00:00", "23:59"), strict=True)
        )
    except ValueError:
        return None
    return (start, end) if start <= end else None


def set_f1(prediction: str, golds: Sequence[str]) -> float:
    """Returns F1 of two sets of items, the best over `golds`. Items are separated by semicolons or lines, or else by commas.

    Items are equal if their normalised words are. The empty set is written `none`: it is right alone, or it is wrong (the score
    of the "Tulving" benchmark of episodic memory, arXiv 2501.13121, where no event matches)."""
    things = set(_things(prediction))
    best = 0.0
    for gold in golds:
        gold_things = set(_things(gold))
        common = len(things & gold_things)
        best = max(best, 2 * common / (len(things) + len(gold_things)) if common else 0.0)
    return best


def in_order(prediction: str, golds: Sequence[str]) -> float:
    """Returns Kendall's tau of the order of items against a gold's; 0 where it is negative, or where the items are not exactly
    the gold's. For a single item it is 1 (arXiv 2501.13121: the chronological score)."""
    things = _things(prediction)
    best = 0.0
    for gold in golds:
        rank = {thing: index for index, thing in enumerate(_things(gold))}
        if len(things) != len(rank) or set(things) != set(rank):
            continue
        places = [rank[thing] for thing in things]
        pairs = [(a, b) for index, a in enumerate(places) for b in places[index + 1 :]]
        best = max(best, sum(1 if a < b else -1 for a, b in pairs) / len(pairs) if pairs else 1.0)
    return best


def _things(text: str) -> list[str]:
    parts = re.split(r"[;\n]", text) if re.search(r"[;\n]", text.strip()) else text.split(",")
    cleaned = (re.sub(r"^\s*(?:[-*]|\d+[.)]|and\b)\s*", "", part) for part in parts)
    return list(dict.fromkeys(filter(None, map(normalise, cleaned))))


# Verifiers by name.


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
        "contains_answer": contains_answer,
        "latex": latex,
        "interval_iou": interval_iou,
        "interval_match": interval_match,
        "set_f1": set_f1,
        "in_order": in_order,
    }
)

ABSTAINED = "abstained"
"""The verifier of questions without an answer: 1.0 for a prediction that says so, as `abstains` decides, and is not empty."""


def verifier(name: str) -> Verifier:
    """Returns the verifier of that name, which maps (prediction, answers) to a reward in [0, 1]. Raises UnknownName with the
    nearest."""
    return VERIFIERS[require_known("verifier", name, VERIFIERS)]


def verify(task: Task, prediction: str) -> float:
    """Returns the reward of `prediction` on `task`, in [0, 1], by the verifier that the task names."""
    if task.verifier == ABSTAINED:
        return float(bool(normalise(prediction)) and abstains(prediction))
    return verifier(task.verifier)(prediction, task.answers)

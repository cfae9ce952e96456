"""How often a judge behind an OpenAI-compatible URL is wrong on planted answers, beside the lexical scores.

    vllm serve smollm2-135m-instruct
    python -m benchmarks.statistics.judges http://127.0.0.1:8000 smollm2-135m-instruct --out benchmarks/statistics/judges.json

Given again with another model, the file holds both. Answers are right or wrong by construction: right ones (as it is, in a
sentence, in other words) and wrong ones (another value, a list of guesses, something vague, a denial, an abstention), after
"VerifyBench" (arXiv 2507.09884). An audit of the judge that is usual on LoCoMo found 62.8 % of vague wrong answers accepted.
"""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.record import arguments, save
from keepworth.base.chat import ChatModel
from keepworth.base.metrics import exact_match, token_f1
from keepworth.base.statistics import rate
from keepworth.evaluation.judge import Judge, Judging, judge

ACCEPTED = 0.5
"""A score from which an answer counts as accepted."""


@dataclass(frozen=True, slots=True)
class Planted:
    """An answer that is right or wrong by construction. form: what kind of right or wrong."""

    question: str
    gold: str
    answer: str
    right: bool
    form: str


FACTS = json.loads((Path(__file__).parent / "planted_answers.json").read_text(encoding="utf-8"))


def planted_answers() -> list[Planted]:
    """Answers to questions about people's lives, as a memory is asked them: three right and five wrong ones for each."""
    answers = []
    for number, fact in enumerate(FACTS):
        gold, near = fact["gold"], fact["near"]
        others = [FACTS[(number + step) % len(FACTS)]["gold"] for step in (5, 11)]
        guesses = f"{near}, {gold} or {others[0]}" if number % 2 else f"either {gold} or {near} or {others[1]}"
        for form, answer, right in (
            ("as it is", gold, True),
            ("in a sentence", fact["sentence"], True),
            ("in other words", fact["other words"], True),
            ("another value", near, False),
            ("list of guesses", guesses, False),
            ("vague", fact["vague"], False),
            ("denied", f"It was not {gold}.", False),
            ("abstained", "I don't know." if number % 2 else "That was not mentioned.", False),
        ):
            answers.append(Planted(fact["question"], gold, answer, right, form))
    return answers


def errors(judge: Judge, planted: Sequence[Planted]) -> dict[str, Any]:
    """How often `judge` is wrong on planted answers.

    precision: of the accepted answers, the right ones; recall: of the right answers, the accepted ones; false accept: of the
    wrong answers, the accepted ones. failed: answers without a score, which count as not accepted; failure: why the first has
    none. None where there is nothing to take it of. Intervals treat answers as independent."""
    met = Judging(judge)
    scores = [met(answer.question, answer.gold, answer.answer) for answer in planted]
    rows = [(answer, score is not None and score >= ACCEPTED) for answer, score in zip(planted, scores, strict=True)]

    def share(hits: Sequence[bool]) -> dict[str, Any] | None:
        return asdict(rate(sum(hits), len(hits))) if hits else None

    forms: dict[str, tuple[bool, list[bool]]] = {}
    for answer, taken in rows:
        forms.setdefault(answer.form, (answer.right, []))[1].append(taken)
    return {
        "n": len(planted),
        "failed": met.failed,
        **({"failure": met.first} if met.first else {}),
        "precision": share([answer.right for answer, taken in rows if taken]),
        "recall": share([taken for answer, taken in rows if answer.right]),
        "false accept": share([taken for answer, taken in rows if not answer.right]),
        "accepted by form": {form: {"right": right, **(share(hits) or {})} for form, (right, hits) in forms.items()},
    }


def main() -> None:
    parser = arguments(__doc__, json=False)
    parser.add_argument("url")
    parser.add_argument("model")
    parser.add_argument("--key-variable", default="", help="the environment variable that holds the key")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    planted = planted_answers()
    known = json.loads(asked.out.read_text())["scorers"] if asked.out and asked.out.exists() else {}
    known["exact_match"] = errors(lambda question, gold, answer: exact_match(answer, (gold,)), planted)
    known["token_f1 of at least 0.5"] = errors(lambda question, gold, answer: token_f1(answer, (gold,)), planted)
    began = time.perf_counter()
    chat = ChatModel(asked.url, asked.model, key_variable=asked.key_variable, max_tokens=64, seed=0)
    known[asked.model] = {**errors(judge(chat), planted), "seconds": time.perf_counter() - began}
    for name, scorer in known.items():
        means = {key: scorer[key] and f"{scorer[key]['mean']:.3f}" for key in ("precision", "recall", "false accept")}
        print(f"{name:28} n={scorer['n']} failed {scorer['failed']} {means} {scorer.get('failure', '')}")
    versions = {"python": platform.python_version(), "keepworth": version("keepworth")}
    save(asked.out, {"scorers": known, "versions": versions})


if __name__ == "__main__":
    main()

"""How often a judge behind an OpenAI-compatible URL is wrong on planted answers, beside the lexical scores.

    vllm serve smollm2-135m-instruct
    python -m benchmarks.statistics.judges http://127.0.0.1:8000 smollm2-135m-instruct --out benchmarks/statistics/judges.json

Given again with another model, the file holds both. Answers are right or wrong by construction: right ones (as it is, in a
sentence, in other words) and wrong ones (another value, a list of guesses, something vague, a denial, an abstention), after
"VerifyBench" (arXiv 2507.09884). An audit of the judge that is usual on LoCoMo found 62.8 % of vague wrong answers accepted.
"""

from __future__ import annotations

import json
import math
import platform
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.record import arguments, save
from keepworth.evaluation.judge import Judge, judged
from keepworth.evaluation.statistics import MeanEstimate, rate
from keepworth.models.chat import ChatModel, judge
from keepworth.tasks.metrics import exact_match, token_f1

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


AS_IT_IS, SENTENCE, PARAPHRASE = "as it is", "in a sentence", "in other words"
OTHER, GUESSES, VAGUE, DENIED, ABSTAINED = "another value", "list of guesses", "vague", "denied", "abstained"

# Of each: question, gold, a sentence that holds it; then the same in other words, another value near to it, and something vague.
_FACTS_TEXT = """
When did Caroline go to the support group? | 7 May 2023 | Caroline went on 7 May 2023.
    on May 7th, 2023 | 8 May 2023 | sometime in spring
How many children does Melanie have? | 3 | Melanie has 3 children.
    three | 4 | a few
Where did Joanna move from? | Sweden | Joanna moved here from Sweden.
    her Swedish hometown | Norway | another country in Europe
What pet did Andrew adopt? | a puppy | Andrew adopted a puppy.
    a young dog | a kitten | an animal he likes
What is the name of the dog? | Luna | The dog is called Luna.
    they call her Luna | Lana | a name that the family chose together
How long did the flight take? | 90 minutes | The flight took 90 minutes.
    an hour and a half | 80 minutes | not very long
What instrument does Maria play? | violin | Maria plays the violin.
    the fiddle | cello | a string instrument
What did Tim pay for the bike? | $250 | Tim paid $250 for the bike.
    250 dollars | $205 | less than he expected
What is Nate's job? | nurse | Nate works as a nurse.
    he cares for patients on a hospital ward | doctor | something in health
Which book did they read in March? | Dune | In March they read Dune.
    Frank Herbert's novel about Arrakis | Emma | a well-known novel
What time is the appointment? | 3:30 pm | The appointment is at 3:30 pm.
    half past three in the afternoon | 3:00 pm | in the afternoon
Who taught Sam to swim? | his grandmother | His grandmother taught Sam to swim.
    his father's mother | his aunt | someone in the family
What was wrong with the car? | the battery was flat | The trouble was that the battery was flat.
    its battery had run down | the tyre was flat | it would not go
Which city hosts the conference? | Lisbon | The conference is in Lisbon.
    the capital of Portugal | Porto | a city by the sea
What is Evan allergic to? | peanuts | Evan is allergic to peanuts.
    groundnuts | walnuts | certain foods
How far does Kate run each day? | 5 km | Kate runs 5 km each day.
    five kilometres | 6 km | quite a distance
What colour is the new door? | dark green | The new door is dark green.
    a deep shade of green | dark blue | a dark colour
When is Priya's birthday? | February 29 | Priya's birthday is on February 29.
    the leap day | February 28 | in winter
What did John study? | geology | John studied geology.
    the science of rocks and the earth | geography | a natural science
How did they travel to Oslo? | by train | They travelled to Oslo by train.
    they took the railway | by bus | over land
What share of the class passed? | 75% | 75% of the class passed.
    three quarters | 57% | most of them
What does Gina sell in her store? | clothes | Gina sells clothes in her store.
    garments | shoes | things to wear and more
Why did Leo leave the band? | he had no time | Leo left because he had no time.
    he was too busy | he had no money | for personal reasons
Did Ana finish the marathon? | yes | Yes, Ana finished the marathon.
    she did | no | she tried very hard
"""
_FACTS = [
    tuple(part.strip() for line in pair for part in line.split("|"))
    for pair in zip(*[iter(_FACTS_TEXT.strip().splitlines())] * 2, strict=True)
]


def planted_answers() -> list[Planted]:
    """Answers to questions about people's lives, as a memory is asked them: three right and five wrong ones for each."""
    answers = []
    for number, (question, gold, sentence, other_words, near, vague) in enumerate(_FACTS):
        others = [_FACTS[(number + step) % len(_FACTS)][1] for step in (5, 11)]
        guesses = f"{near}, {gold} or {others[0]}" if number % 2 else f"either {gold} or {near} or {others[1]}"
        for form, answer, right in (
            (AS_IT_IS, gold, True),
            (SENTENCE, sentence, True),
            (PARAPHRASE, other_words, True),
            (OTHER, near, False),
            (GUESSES, guesses, False),
            (VAGUE, vague, False),
            (DENIED, f"It was not {gold}.", False),
            (ABSTAINED, "I don't know." if number % 2 else "That was not mentioned.", False),
        ):
            answers.append(Planted(question, gold, answer, right, form))
    return answers


@dataclass(frozen=True, slots=True)
class ScorerErrors:
    """precision: of the accepted answers, the right ones; recall: of the right answers, the accepted ones; false_accept: of the
    wrong answers, the accepted ones. by_form: how often answers of each form were accepted. failed: answers without a score,
    which count as not accepted, and why the first has none. None where there is nothing to take it of. Intervals treat answers as
    independent."""

    precision: MeanEstimate | None
    recall: MeanEstimate | None
    false_accept: MeanEstimate | None
    by_form: dict[str, tuple[bool, MeanEstimate]]
    failed: int
    n: int
    failure: str = ""


def errors(judge: Judge, planted: Sequence[Planted]) -> ScorerErrors:
    """How often `judge` is wrong on planted answers. by_form: (whether the form is right, share accepted)."""
    met = judged(judge, [(answer.question, answer.gold, answer.answer) for answer in planted])
    accepted = [score is not None and score >= ACCEPTED for score in met.scores]
    rows = list(zip(planted, accepted, strict=True))

    def share(hits: Sequence[bool]) -> MeanEstimate | None:
        return rate(sum(hits), len(hits)) if hits else None

    forms: dict[str, tuple[bool, list[bool]]] = {}
    for answer, taken in rows:
        forms.setdefault(answer.form, (answer.right, []))[1].append(taken)
    return ScorerErrors(
        share([answer.right for answer, taken in rows if taken]),
        share([taken for answer, taken in rows if answer.right]),
        share([taken for answer, taken in rows if not answer.right]),
        {form: (right, rate(sum(hits), len(hits))) for form, (right, hits) in forms.items()},
        met.failed,
        len(planted),
        met.first,
    )


def corrected(accepted: float, scorer: ScorerErrors) -> float | None:
    """The share of right answers behind a share of accepted ones, given the judge's errors; None where they say nothing.

    (accepted - false accepts) / (recall - false accepts), cut to [0, 1] (Rogan and Gladen, "Estimating prevalence from the
    results of a screening test", American Journal of Epidemiology 107, 1978). It holds as far as real answers are like planted
    ones."""
    if scorer.recall is None or scorer.false_accept is None:
        return None
    span = scorer.recall.mean - scorer.false_accept.mean
    if span <= 0.0 or not math.isfinite(accepted):
        return None
    return min(1.0, max(0.0, (accepted - scorer.false_accept.mean) / span))


def row(errors: ScorerErrors) -> dict[str, Any]:
    def cell(value: Any) -> Any:
        return None if value is None else asdict(value)

    return {
        "n": errors.n,
        "failed": errors.failed,
        **({"failure": errors.failure} if errors.failure else {}),
        "precision": cell(errors.precision),
        "recall": cell(errors.recall),
        "false accept": cell(errors.false_accept),
        "accepted by form": {
            form: {"right": right, **asdict(share)} for form, (right, share) in errors.by_form.items()
        },
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
    known["exact_match"] = row(errors(lambda question, gold, answer: exact_match(answer, (gold,)), planted))
    known["token_f1 of at least 0.5"] = row(errors(lambda question, gold, answer: token_f1(answer, (gold,)), planted))
    began = time.perf_counter()
    chat = ChatModel(asked.url, asked.model, key_variable=asked.key_variable, max_tokens=64, seed=0)
    known[asked.model] = {**row(errors(judge(chat), planted)), "seconds": time.perf_counter() - began}
    for name, scorer in known.items():
        means = {key: scorer[key] and f"{scorer[key]['mean']:.3f}" for key in ("precision", "recall", "false accept")}
        print(f"{name:28} n={scorer['n']} failed {scorer['failed']} {means} {scorer.get('failure', '')}")
    if asked.out:
        versions = {"python": platform.python_version(), "keepworth": version("keepworth")}
        save(asked.out, {"scorers": known, "versions": versions})


if __name__ == "__main__":
    main()

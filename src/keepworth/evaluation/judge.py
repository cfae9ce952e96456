"""An optional judge of answers beside the lexical scores, and how often any scorer is wrong, on answers planted to find out.

A judge is handed in: a function of (question, gold, answer) to a score in [0, 1]. `keepworth.models.chat.judge` makes one of a
chat model behind an OpenAI-compatible URL. A judge may fail, and lexical scores go on without it: what failed is counted.

A judge's number means little without its own error: an audit of the judge that is usual on LoCoMo found 62.8 % of vague wrong
answers accepted. So each is run on planted answers whose truth is known by construction, right ones (as it is, in a sentence, in
other words) and wrong ones (a near number or another value, a list of guesses, something vague, a denial, an abstention), after
"VerifyBench" (arXiv 2507.09884). The same cases measure verifiers, which trainings take as rewards.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Protocol

from keepworth.episodes.errors import KeepworthError
from keepworth.evaluation.statistics import MeanEstimate, rate
from keepworth.tasks.verifiers import Verifier

ACCEPTED = 0.5
"""A score from which an answer counts as accepted."""
PATIENCE = 5
"""Failures in a row, with no answer before them, after which a judge is not asked again."""


class Judge(Protocol):
    def __call__(self, question: str, gold: str, answer: str, /) -> float:
        """A score in [0, 1]. It may raise."""
        ...


class JudgeFailed(KeepworthError):
    """A judge raised, or gave what is no score in [0, 1]. failed, of: how many answers have no score of it; first: why
    the first has none."""

    def __init__(self, failed: int, of: int, first: str) -> None:
        super().__init__(
            f"The judge failed on {failed} of {of} answers; the first time: {first.rstrip('.')}.",
            "The lexical scores are complete. See that the judge answers with a score in [0, 1], or take another one.",
        )
        self.failed, self.of, self.first = failed, of, first


@dataclass(frozen=True, slots=True)
class Judged:
    """scores: None where the judge failed. failure: what happened, None where nothing did; nobody raises it."""

    scores: tuple[float | None, ...]
    failure: JudgeFailed | None = None

    @property
    def failed(self) -> int:
        return sum(score is None for score in self.scores)


def judged(judge: Judge, answers: Sequence[tuple[str, str, str]]) -> Judged:
    """Scores of (question, gold, answer), in order. A judge that is not there is not waited for again and again."""
    scores: list[float | None] = []
    first = ""
    for question, gold, answer in answers:
        if len(scores) >= PATIENCE and all(score is None for score in scores):
            scores.append(None)
            continue
        try:
            score = float(judge(question, gold, answer))
            if not 0.0 <= score <= 1.0:
                raise ValueError(f"a score of {score}, which is not in [0, 1]")
            scores.append(score)
        except Exception as error:  # whatever it is, it is the judge's
            first = first or f"{type(error).__name__}: {error}"
            scores.append(None)
    failed = sum(score is None for score in scores)
    return Judged(tuple(scores), JudgeFailed(failed, len(scores), first) if failed else None)


def by_verifier(verifier: Verifier) -> Judge:
    """A verifier or a lexical metric as a judge: it does not look at the question."""
    return lambda question, gold, answer: verifier(answer, (gold,))


# Planted answers.


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
    tuple(part.strip() for line in both for part in line.split("|"))
    for both in zip(*[iter(_FACTS_TEXT.strip().splitlines())] * 2, strict=True)
]
# Ways to say that one does not know, and answers that hold words of them. `abstains` was not changed after they were
# written.
_ABSTENTIONS = (
    "I have no idea",
    "The speakers never talk about it.",
    "That information isn't available.",
    "It is not specified in the conversation.",
    "No answer can be given.",
    "Based on what I remember, this was not discussed.",
    "I can't find that in your messages",
    "Cannot be determined",
    "None of the notes mention a price.",
    "You haven't told me yet.",
    "Sorry, I do not recall that.",
    "Not stated",
    "There is no mention of a dog.",
    "I'm unable to answer",
    "We don't know.",
    "n/a",
)
_NO_ABSTENTIONS = (
    "I do not like tea; I asked for coffee",
    "It was not a dog but a cat",
    "known as the Old Mill",
    "There were no survivors",
    "No, she did not",
    "He was never told",
    "nothing but bread",
    "not until Friday",
    "It is unclear water, from the lake",
    "No evidence-based treatment worked, so they moved",
    "You said Tuesday",
    "She could not find her keys",
    "Sorry, by Justin Bieber",
    "clear blue",
    "memory foam",
    "I cannot stand heights, so the ground floor",
)


def planted_answers() -> list[Planted]:
    """Answers to questions about people's lives, as a memory is asked them: three right and five wrong ones for each."""
    found = []
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
            found.append(Planted(question, gold, answer, right, form))
    return found


def planted_abstentions() -> list[Planted]:
    """Whether a text says that there is no answer: right are those that do, in words that nobody fitted anything to."""
    return [Planted("", "", text, True, ABSTAINED) for text in _ABSTENTIONS] + [
        Planted("", "", text, False, "an answer") for text in _NO_ABSTENTIONS
    ]


def planted_numbers(count: int = 60, seed: int = 0) -> list[Planted]:
    """Answers that are numbers, in the forms in which models write them, and wrong ones that look like them."""
    draw = random.Random(seed)
    found = []
    for number in range(count):
        first, second = draw.randrange(12, 2400), draw.randrange(3, 97)
        value, question = first * second, f"What is {first} times {second}?"
        gold, grouped = str(value), f"{value:,}"
        step = draw.choice((1, -1, 10, -10))
        near, further = str(value + step), str(value - 2 * step)
        swapped = gold[:-2] + gold[:-3:-1] if gold[-1] != gold[-2] else str(value + 9)
        at = number % 2
        for form, answer, right in (
            (AS_IT_IS, gold, True),
            (SENTENCE, (f"The answer is {gold}.", f"She has {gold} of them in all.")[at], True),
            ("thousands and unit", (f"${grouped}", f"{grouped} km")[at], True),
            ("decimals", f"{gold}.00", True),
            ("worked out", f"{first} * {second} = {gold}\n#### {gold}", True),
            ("boxed", f"So it is $\\boxed{{{gold}}}$", True),
            (OTHER, near, False),
            ("digits changed about", swapped, False),
            ("other sign", f"-{gold}", False),
            ("ten times", f"{gold}0", False),
            (GUESSES, (f"{near}, {gold} or {further}", f"It is {gold} or {near}.")[at], False),
            ("worked out wrongly", f"{first} * {second} = {near}\n#### {near}", False),
            (DENIED, (f"It is not {gold}.", f"{gold} is wrong.")[at], False),
            ("taken back", f"I first had {gold}, but the answer is {near}.", False),
            ("of the question", f"{first} and {second}", False),
            (ABSTAINED, "I cannot tell.", False),
        ):
            found.append(Planted(question, gold, answer, right, form))
    return found


def planted_expressions(count: int = 60, seed: int = 0) -> list[Planted]:
    """Expressions that come to a number, and such that do not."""
    draw = random.Random(seed)
    found = []
    for _ in range(count):
        first, second, third = draw.randrange(2, 60), draw.randrange(2, 60), draw.randrange(2, 9)
        value = first * third + second
        gold, question = str(value), f"Make {value} of {first}, {second} and {third}."
        for form, answer, right in (
            (AS_IT_IS, f"{first} * {third} + {second}", True),
            ("with its value", f"{first} * {third} + {second} = {gold}", True),
            ("brackets", f"({first} * {third}) + {second}", True),
            ("other signs for times", f"{first} × {third} + {second}", True),
            (OTHER, f"{first} * {third} + {second + 1}", False),
            ("another order", f"{first} * ({third} + {second})", False),
            ("right value of a wrong expression", f"{first} + {third} + {second} = {gold}", False),
            (GUESSES, f"{gold}, {value + 1}", False),
            (DENIED, f"not {first} * {third} + {second}", False),
            (ABSTAINED, "I cannot tell.", False),
        ):
            found.append(Planted(question, gold, answer, right, form))
    return found


_WORDS = ("red", "sun", "cat", "hill", "rain", "door", "milk", "blue")


def planted_words(count: int = 40, seed: int = 0) -> list[Planted]:
    """Lists of words whose order is the answer."""
    draw = random.Random(seed)
    found = []
    for _ in range(count):
        words = draw.sample(_WORDS, 4)
        gold, turned = " ".join(words), " ".join(words[::-1])
        for form, answer, right in (
            (AS_IT_IS, gold, True),
            ("worked out", f"f({turned}) = {gold}", True),
            ("more blanks", "  ".join(words), True),
            ("another order", turned, False),
            ("one word left out", " ".join(words[:-1]), False),
            ("one word more", f"{gold} {words[0]}", False),
            (GUESSES, f"{gold} or {turned}", False),
            (DENIED, f"not {gold}", False),
            ("taken back", f"{gold} = {turned}", False),
        ):
            found.append(Planted("", gold, answer, right, form))
    return found


def planted_operations() -> list[Planted]:
    """Memory operations as a model writes them."""
    found = []
    for gold, others in (
        ("ADD", ("NOOP", "UPDATE 0")),
        ("UPDATE 1", ("UPDATE 2", "ADD")),
        ("DELETE 0", ("NOOP", "DELETE 1")),
    ):
        for form, answer, right in (
            (AS_IT_IS, gold, True),
            ("small letters", gold.lower(), True),
            ("with a full stop", f"{gold}.", True),
            *((OTHER, other, False) for other in others),
            (GUESSES, f"{gold} or {others[0]}", False),
            (DENIED, f"not {gold}", False),
            ("no operation", "the memory is fine", False),
        ):
            found.append(Planted("", gold, answer, right, form))
    return found


def planted_intervals(count: int = 40, seed: int = 0) -> list[Planted]:
    """Intervals of time, from one day to another."""
    draw = random.Random(seed)
    found = []
    for _ in range(count):
        first = date(2020, 1, 1) + timedelta(days=draw.randrange(1500))
        last, day = first + timedelta(days=draw.randrange(4, 40)), timedelta(days=1)
        after = last + (last - first)
        gold = f"{first}T00:00/{last}T23:59"
        for form, answer, right in (
            (AS_IT_IS, gold, True),
            (SENTENCE, f"It was from {first} 00:00 to {last} 23:59.", True),
            ("days alone", f"{first} to {last}", True),
            ("one day late", f"{first + day} to {last + day}", False),
            ("the time after it", f"{last + day} to {after + day}", False),
            ("one end", f"since {first}", False),
            (GUESSES, f"{gold} or {last + day} to {after + day}", False),
            (DENIED, f"not {first} to {last}", False),
            (ABSTAINED, "I cannot tell.", False),
        ):
            found.append(Planted("", gold, answer, right, form))
    return found


def planted_lists(ordered: bool, count: int = 40, seed: int = 0) -> list[Planted]:
    """Lists of things. ordered: whether their order is part of the answer."""
    draw = random.Random(seed)
    found = []
    for _ in range(count):
        *things, other = draw.sample(_WORDS, 5)
        gold = "; ".join(things)
        for form, answer, right in (
            (AS_IT_IS, gold, True),
            ("with commas", ", ".join(things), True),
            ("a line each", "\n".join(f"- {thing}" for thing in things), True),
            ("backwards", "; ".join(things[::-1]), not ordered),
            ("two changed about", "; ".join([things[1], things[0], *things[2:]]), not ordered),
            ("one left out", "; ".join(things[:-1]), False),
            ("one more", "; ".join([*things, other]), False),
            ("all there are", "; ".join(_WORDS), False),
            ("other things", "; ".join(word for word in _WORDS if word not in things), False),
            (ABSTAINED, "none", False),
        ):
            found.append(Planted("", gold, answer, right, form))
    return found


# Errors on them.


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
    met = judged(judge, [(each.question, each.gold, each.answer) for each in planted])
    accepted = [score is not None and score >= ACCEPTED for score in met.scores]
    rows = list(zip(planted, accepted, strict=True))

    def share(hits: Sequence[bool]) -> MeanEstimate | None:
        return rate(sum(hits), len(hits)) if hits else None

    forms: dict[str, tuple[bool, list[bool]]] = {}
    for each, taken in rows:
        forms.setdefault(each.form, (each.right, []))[1].append(taken)
    return ScorerErrors(
        share([each.right for each, taken in rows if taken]),
        share([taken for each, taken in rows if each.right]),
        share([taken for each, taken in rows if not each.right]),
        {form: (right, rate(sum(hits), len(hits))) for form, (right, hits) in forms.items()},
        met.failed,
        len(planted),
        str(met.failure or ""),
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


PLANTED: dict[str, Callable[[], list[Planted]]] = {
    "numeric": planted_numbers,
    "math_verify": planted_numbers,
    "expression": planted_expressions,
    "same_words": planted_words,
    "operation": planted_operations,
    "exact_match": planted_answers,
    "token_f1": planted_answers,
    "contains_answer": planted_answers,
    "latex": planted_numbers,
    "interval_iou": planted_intervals,
    "interval_match": planted_intervals,
    "set_f1": lambda: planted_lists(ordered=False),
    "in_order": lambda: planted_lists(ordered=True),
}
"""The cases that each verifier is meant for."""

"""A space of difficulty with three axes, and reinforcement that moves along one at a time (We-Math 2.0, arXiv 2508.10433).

A problem says what people have, sentence by sentence, and asks what the last of a chain has. Its axes, in words where the paper
has steps, visual and contextual complexity:

    steps        relations that have to be followed: "Bob has 3 more than Ann"
    distractors  sentences about people that the chain does not need
    wordings     paraphrases, of which each sentence draws one

A problem has eight variants, each axis at its easiest or at its hardest, so seven beside the easiest; the score is the share of
right answers over these. The pupil reads sentence after sentence and adds, takes away, multiplies or skips: a softmax over what
is said and whether it is about the person at hand, which learns by REINFORCE with the mean of a group as baseline. Schedules:

    progressive             from the easiest on; where more than `MASTERED` of the latest are right, the next axis goes up a step
    averaged over variants  the same, and an answer is credited with the mean over the variants of its problem so far
    the same, shuffled      the difficulties of `progressive` in an order by chance: its mixture without its order
    uniform                 anywhere in the space
    hardest, easiest alone  one corner

All have the same number of answers, and a rate that is best for `uniform` on development seeds; with half as many answers again
`uniform` comes to the same there. Control: `progressive` on rewards of other answers.

The verdict, fixed before the seeds that are measured (development seeds begin at 1000): *held* where `progressive` is above
uniform, above its own problems shuffled and above the hardest alone, each by a paired interval over seeds; *held in part* where
it is above the hardest alone and one of the other two; *not reachable here* where it is not above rewards of other answers; else
*not held*.

`keepworth methods run difficulty_space` (a minute)
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from keepworth.base.errors import KeepworthError
from keepworth.evaluation.study import Rows, Study, differences, rows_of
from keepworth.registry import Method

Cell = tuple[int, int, int]
"""Steps, distractors and wordings."""
EASIEST, HARDEST = (1, 0, 1), (5, 4, 5)
KINDS = ("has", "more", "fewer", "times")
OPERATIONS = ("add", "take", "multiply", "skip")
MASTERED, WINDOW, GROUP, TESTS = 0.7, 20, 8, 25
"""Success above which an axis moves; number of latest problems in that mean; answers to a problem; test problems of a variant."""


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence. phrase: the number of its kind and wording. about, than: people; than: -1 for none."""

    phrase: int
    about: int
    than: int
    number: int


@dataclass(frozen=True, slots=True)
class Puzzle:
    sentences: tuple[Sentence, ...]
    answer: int


def draw_problem(cell: Cell, draw: random.Random) -> Puzzle:
    """Returns a problem of this difficulty."""
    steps, distractors, wordings = cell

    def say(kind: int, about: int, than: int) -> Sentence:
        return Sentence(kind * HARDEST[2] + draw.randrange(wordings), about, than, draw.randint(2, 9))

    chain = [say(0, 0, -1)] + [say(draw.randint(1, 3), person, person - 1) for person in range(1, steps + 1)]
    value = 0
    for sentence in chain:
        value = _reckon(value, right_operation(sentence), sentence.number)
    sentences = list(chain)
    for stranger in range(distractors):
        kind = draw.randrange(len(KINDS))
        other = say(kind, 100 + stranger, 200 + stranger if kind else -1)
        sentences.insert(draw.randint(1, len(sentences)), other)
    return Puzzle(tuple(sentences), value)


def right_operation(sentence: Sentence) -> int:
    """Returns the operation of a sentence of the chain: "has" and "more" add, "fewer" subtracts, "times" multiplies."""
    return (0, 0, 1, 2)[sentence.phrase // HARDEST[2]]


def _reckon(value: int, operation: int, number: int) -> int:
    """Returns the value after one operation."""
    return (value + number, value - number, value * number, value)[operation]


class Solver:
    """A softmax over operations, with scores for the phrase and for whether it is about the current person."""

    def __init__(self, rate: float, seed: int) -> None:
        self.rate, self.draw = rate, random.Random(f"difficulty/pupil/{seed}")
        self.weights = [[0.0] * len(OPERATIONS) for _ in range(2 * len(KINDS) * HARDEST[2] + 2)]

    def answer(self, problem: Puzzle, greedy: bool = False) -> tuple[bool, list[tuple[int, int, int, list[float]]]]:
        """Answers a problem. Returns whether the answer is right, and for each sentence its two rows of weights, the operation
        and the probabilities."""
        value, at_hand, choices = 0, -1, []
        for sentence in problem.sentences:
            linked = sentence.than == at_hand
            row, shared = 2 * sentence.phrase + linked, len(self.weights) - 2 + linked
            scores = [one + other for one, other in zip(self.weights[row], self.weights[shared], strict=True)]
            highest = max(scores)
            powers = [math.exp(score - highest) for score in scores]
            shares = [power / sum(powers) for power in powers]
            operation = scores.index(highest) if greedy else self.draw.choices(range(4), shares)[0]
            if OPERATIONS[operation] != "skip":
                at_hand = sentence.about
            value = _reckon(value, operation, sentence.number)
            choices.append((row, shared, operation, shares))
        return value == problem.answer, choices

    def reinforce(self, answers: Sequence[list[tuple[int, int, int, list[float]]]], rewards: Sequence[float]) -> None:
        """Takes one step along the mean of (reward - mean reward) * the gradient of log probability."""
        mean = sum(rewards) / len(rewards)
        for choices, reward in zip(answers, rewards, strict=True):
            step = self.rate * (reward - mean) / len(rewards)
            for row, shared, operation, shares in choices if step else ():
                for other, share in enumerate(shares):
                    change = step * ((other == operation) - share)
                    self.weights[row][other] += change
                    self.weights[shared][other] += change


def variants_of(cell: Cell) -> list[Cell]:
    """Returns the distinct combinations of each axis at its easiest and at its level in `cell`."""
    steps, distractors, wordings = zip(EASIEST, cell, strict=True)
    return list(dict.fromkeys(product(steps, distractors, wordings)))


class Frontier:
    """The state of a schedule that moves one axis at a time."""

    def __init__(self) -> None:
        self.cell, self.axis = EASIEST, 0
        self.latest: deque[float] = deque(maxlen=WINDOW)

    def note(self, success: float) -> None:
        """Moves the next possible axis if the latest problems of this cell are mastered."""
        self.latest.append(success)
        if len(self.latest) < WINDOW or sum(self.latest) / WINDOW <= MASTERED:
            return
        for _ in range(3):
            axis, self.axis = self.axis, (self.axis + 1) % 3
            if self.cell[axis] < HARDEST[axis]:
                steps, distractors, wordings = (level + (axis == place) for place, level in enumerate(self.cell))
                self.cell = (steps, distractors, wordings)
                self.latest.clear()
                return


def practise(pupil: Solver, schedule: str, answers: int, seed: int, cells: Sequence[Cell] = ()) -> list[Cell]:
    """Trains a pupil by a schedule, and returns the cells of its problems in order.

    Args:
        pupil: It answers, and learns from rewards.
        schedule: Where problems are drawn: "hardest", "easiest", "uniform", "averaged", "given", or along the frontier.
        answers: The number of answers that it may give.
        seed: That of the problems.
        cells: Those of the schedule "given", in order.
    """
    draw = random.Random(f"difficulty/problems/{seed}")
    past: deque[float] = deque(maxlen=64)
    progress, met, spent = Frontier(), list[Cell](), 0
    given: Iterator[Cell] = iter(cells)
    while spent < answers:
        steps, distractors, wordings = (draw.randint(*ends) for ends in zip(EASIEST, HARDEST, strict=True))
        fixed = {"hardest": HARDEST, "easiest": EASIEST, "uniform": (steps, distractors, wordings)}
        cell = next(given) if schedule == "given" else fixed.get(schedule, progress.cell)
        problems = [draw_problem(of, draw) for of in (variants_of(cell) if schedule == "averaged" else [cell])]
        drawn = [[pupil.answer(problem) for problem in problems] for _ in range(GROUP)]
        rewards = [sum(right for right, _ in one) / len(problems) for one in drawn]
        success = sum(one[-1][0] for one in drawn) / GROUP  # of the problem itself, which is the last of its variants
        if schedule == "permuted":
            past.extend(rewards)
            rewards = [draw.choice(past) for _ in rewards]
        pupil.reinforce([[choice for _, choices in one for choice in choices] for one in drawn], rewards)
        progress.note(success)
        met.append(cell)
        spent += GROUP * len(problems)
    return met


ARMS = {
    "progressive": "progressive",
    "averaged over variants": "averaged",
    "uniform": "uniform",
    "hardest alone": "hardest",
    "easiest alone": "easiest",
    "rewards of other answers": "permuted",
}
SHUFFLED = "the same, shuffled"


def measure(pupil: Solver, seed: int) -> float:
    """Returns the share of right greedy answers over the eight variants."""
    draw = random.Random(f"difficulty/test/{seed}")
    problems = [draw_problem(cell, draw) for cell in variants_of(HARDEST) for _ in range(TESTS)]
    return sum(pupil.answer(problem, greedy=True)[0] for problem in problems) / len(problems)


def run(*, seeds: int = 20, answers: int = 4000, rate: float = 1.0, first: int = 0) -> Rows:
    """Measures the score by schedule, and the differences between `progressive` and the others.

    Args:
        seeds: Pupils of each schedule, with problems of their own.
        answers: Training answers of each pupil.
        rate: Learning rate.
        first: First seed.
    """
    if seeds < 2 or answers < GROUP:
        raise KeepworthError(
            f"seeds={seeds}, answers={answers}: 2 seeds and {GROUP} answers at least.", "Ask for more."
        )
    scores: dict[str, list[float]] = {arm: [] for arm in (*ARMS, SHUFFLED)}
    for seed in range(first, first + seeds):
        pupils = {arm: Solver(rate, seed) for arm in scores}
        met = {arm: practise(pupils[arm], schedule, answers, seed) for arm, schedule in ARMS.items()}
        order = met["progressive"]
        practise(pupils[SHUFFLED], "given", answers, seed, random.Random(seed).sample(order, len(order)))
        for arm, pupil in pupils.items():
            scores[arm].append(measure(pupil, seed))
    clusters = [str(seed) for seed in range(seeds)]
    pairs = [("progressive", other) for other in list(scores)[1:]]
    return rows_of(scores, clusters) + differences(scores, pairs, clusters)


METHOD = Method(
    kind="study",
    name="difficulty_space",
    title="We-Math 2.0's space of difficulty",
    paper="arXiv 2508.10433",
    about="Reinforcement that moves along steps, distractors and wordings of problems one axis at a time, beside other schedules",
    claim="Reinforcement that moves along axes of difficulty and averages rewards over variants generalises in mathematics.",
    differs=(
        "Problems are made up, the axes are those of text, and the pupil is a softmax over sentences in place of a model "
        "that sees; numbers of the paper were not available."
    ),
    tags=("parametric", "experiential", "formation"),
    label="small",
    make=Study(run, "share of right answers over eight variants"),
)

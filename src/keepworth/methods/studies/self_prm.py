"""Measures whether scores of steps choose the right one of n answers of a run.

n answers to each test question are sampled from the run's weights, and one is chosen: at random (pass@1), by vote (majority@n),
by an oracle (pass@n), or by a score of its steps. An answer's score is that of its weakest step; steps end at a comma or a line.
Three scores are compared: the model judges after every step whether the answer is right so far (Self-PRM: "Is PRM Necessary?
Problem-Solving RL Implicitly Induces PRM Capability in LLMs", arXiv 2505.11227); its mean log-probability of the step; and a rule
without a model, the share of the step's words that occur in the question or in an earlier step. Control: every answer is chosen
by the scores of the answers to another question.

`keepworth eval run demo --diagnose self_prm`
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain, product
from statistics import fmean
from typing import TYPE_CHECKING, Any

from keepworth.base.errors import KeepworthError
from keepworth.evaluation.study import Rows, Study, differences, need_clusters, rows_of, wrap_names
from keepworth.registry import Method
from keepworth.worlds.splits import draw_order

if TYPE_CHECKING:
    from keepworth.evaluation.finished_runs import FinishedRun
    from keepworth.records.episode import Episode, Task

ASKED = "\nIs this right so far? Answer Yes or No.\nAnswer:"
ENDS = re.compile(r"(?<=[,\n])")
"""Matches the end of a step."""


def diagnose(
    runs: Sequence[FinishedRun], *, samples: int = 32, questions: int = 40, right: float = 0.5, seed: int = 0
) -> Rows:
    """Returns the share of questions whose chosen answer is right, by the rule that chooses.

    Args:
        runs: The runs that answer; with several, each row begins with the name of its run.
        samples: Answers to each question.
        questions: Limit for a run's test questions.
        right: The least reward of a right answer.
        seed: Seed of the draws.
    """
    if samples < 2 or questions < 3:
        raise KeepworthError(
            f"samples={samples}, questions={questions}: there are 2 or more samples, and 3 or more questions.",
            "Write samples=32 and questions=40, say.",
        )
    rows: Rows = []
    for run in runs:
        before = f"{run.name}: " if len(runs) > 1 else ""
        rows += wrap_names(_choose_answers(run, samples, questions, right, seed), before)
    return rows


def _choose_answers(of: FinishedRun, samples: int, questions: int, right: float, seed: int) -> Rows:
    """Returns the rows of one run. Raises KeepworthError where its answers have no steps."""
    from keepworth.methods.studies._finished_runs import clusters_of, episodes_of

    tests = [(name, task) for name, of_set in of.test.items() for task in of_set]
    drawn = sorted(tests, key=lambda pair: draw_order("self_prm", seed, pair[1].key))[:questions]
    asked: dict[str, list[Task]] = {}
    for name, task in drawn:
        asked.setdefault(name, []).append(task)
    clusters = clusters_of(of, asked)
    need_clusters(f"the test of {of.name}", clusters)
    model = of.weights()
    groups = episodes_of(of, model, asked, samples, seed)
    if all(len(steps_of(episode)) < 2 for group in groups for episode in group):
        raise KeepworthError(
            f"no answer of {of.name} has two steps: there is nothing to score but whole answers.",
            "Name a run whose answers are worked out, with commas or lines between their steps.",
        )
    solved = [[float(episode.reward >= right) for episode in group] for group in groups]
    assessed = [assess(model, group) for group in groups]
    scores = {
        "its own assessment of steps": assessed,
        "its own likelihood of steps": [[likelihood(model, episode) for episode in group] for group in groups],
        "the rule for steps": [
            [grounded(episode.question, steps_of(episode)) for episode in group] for group in groups
        ],
        "the assessment of another question": [*assessed[1:], assessed[0]],
    }
    chosen = {
        "one at random": [fmean(of_one) for of_one in solved],
        f"majority of {samples}": [vote(group, of_one) for group, of_one in zip(groups, solved, strict=True)],
        f"any of {samples}": [max(of_one) for of_one in solved],
        **{
            name: [choose(by, of_one) for by, of_one in zip(of_name, solved, strict=True)]
            for name, of_name in scores.items()
        },
    }
    pairs = product([*scores, f"any of {samples}"], ("one at random", f"majority of {samples}"))
    rows = rows_of(chosen, clusters) + differences(chosen, pairs, clusters)
    told_apart = [
        (ahead(by, of_one), cluster)
        for by, of_one, cluster in zip(assessed, solved, clusters, strict=True)
        if 0.0 < fmean(of_one) < 1.0
    ]
    if len({cluster for _, cluster in told_apart}) >= 3:
        values, of_both = zip(*told_apart, strict=True)
        rows += rows_of({"a right answer is assessed above a wrong one": values}, of_both)
    return rows


def steps_of(episode: Episode) -> list[str]:
    """Returns the steps of an episode's calls, split after commas and lines."""
    return [step for segment in episode.segments for step in ENDS.split(segment.text) if step.strip()]


def assess(model: Any, group: Sequence[Episode]) -> list[float]:
    """Returns the lowest log-odds of Yes over No among each answer's steps, by the model."""
    answers = []
    for episode in group:
        steps = steps_of(episode) or [""]
        begins = [f"{episode.question}\n{''.join(steps[: index + 1]).strip()}{ASKED}" for index in range(len(steps))]
        answers.append(begins)
    asked = dict.fromkeys(chain.from_iterable(answers))
    yes, no = (model.encode_continuation(word) for word in (" Yes", " No"))
    scores = model.score([model.encode(text) for text in asked], [[yes, no] for _ in asked])
    odds = {text: sum(of[0]) - sum(of[1]) for text, of in zip(asked, scores, strict=True)}
    return [min(odds[text] for text in begins) for begins in answers]


def likelihood(model: Any, episode: Episode) -> float:
    """Returns the lowest mean log-probability among an answer's steps, as sampled."""
    means = []
    for segment in episode.segments:
        step: list[float] = []
        for token, logprob in zip(segment.ids, segment.logprobs, strict=True):
            step.append(logprob)
            if ENDS.search(model.decode([token])):
                means.append(fmean(step))
                step = []
        means += [fmean(step)] if step else []
    return min(means, default=0.0)


def grounded(question: str, steps: Sequence[str]) -> float:
    """Returns the lowest share of a step's words and numbers that occur in the question or in an earlier step."""
    before, shares = set(re.findall(r"\w+", question.lower())), []
    for step in steps:
        words = re.findall(r"\w+", step.lower())
        shares += [fmean(float(word in before) for word in words)] if words else []
        before |= set(words)
    return min(shares, default=0.0)


def choose(scores: Sequence[float], right: Sequence[float]) -> float:
    """Returns the probability that the answer with the highest score is right; ties are broken at random."""
    best = max(scores)
    return fmean(value for score, value in zip(scores, right, strict=True) if score == best)


def vote(group: Sequence[Episode], right: Sequence[float]) -> float:
    """Returns the probability that the most frequent answer is right; ties are broken at random."""
    answers = [" ".join(episode.answer.lower().split()) for episode in group]
    return choose([answers.count(answer) for answer in answers], right)


def ahead(scores: Sequence[float], right: Sequence[float]) -> float:
    """Returns the share of pairs of a right and a wrong answer in which the right one scores higher, ties as half."""
    best = [score for score, value in zip(scores, right, strict=True) if value]
    others = [score for score, value in zip(scores, right, strict=True) if not value]
    return fmean(float(one > other) + 0.5 * float(one == other) for one in best for other in others)


METHOD = Method(
    kind="study",
    name="self_prm",
    title="Self-PRM",
    paper="arXiv 2505.11227",
    about="Chooses one of n answers of a run by scores of its steps: the model's own or a rule's, against a vote and an oracle",
    claim="A model that was trained by reinforcement chooses better by its own assessment of steps than a vote does, from 32 on.",
    differs="A 135M model says yes or no of every step; the paper's models reason about a whole solution before they say so.",
    tags=("parametric", "factual", "formation"),
    label="protocol",
    make=Study(None, "share of questions whose chosen answer is right", diagnose),
    extra="train",
)

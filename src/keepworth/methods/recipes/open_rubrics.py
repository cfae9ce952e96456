"""Open Rubric System: the answers of a group are compared in pairs, criterion by criterion, and wins are the reward.

After the Open Rubric System (OpenRS, arXiv 2602.14069), on compositions of strings. A judge says for each pair and each criterion
k which answer is better, s_k in {-1, 0, 1}; the weights are applied outside the judge, S(i, j) = sum_k w_k s_k / sum_k w_k,
averaged over both orders, which cancels a preference for the first answer. What a program can check about one answer alone is a
gate.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pydantic import Field

from keepworth.methods.recipes import strings
from keepworth.training.hooks import NO_HOOKS, Hooks
from keepworth.training.recipe import Recipe, recipe_method
from keepworth.training.settings import Idle, Refill, is_supervised

if TYPE_CHECKING:
    from keepworth.base.chat import ChatModel
    from keepworth.records import Episode, Task
    from keepworth.training.collect.later_rewards import Service, Services
    from keepworth.training.system import System

JUDGE, AT_ONCE = "judge", 8
"""The name of the service, and how many pairs a chat model is asked about at once."""


class Config(strings.Config):
    """Settings: the strings recipe with a judge in place of right or wrong, which is logged."""

    refill: Refill = 0
    judge: str = Field(
        default="",
        description="a chat model behind OPENAI_BASE_URL that compares, with G (G - 1) questions for a group of G answers; "
        "empty: programs compare, by the same criteria",
    )

    def idle(self) -> Iterator[Idle]:
        yield from super().idle()
        if is_supervised(self):
            yield ("judge",), "with method = supervised", "set method = reinforce"


@dataclass(frozen=True, slots=True)
class Criterion:
    """A criterion by which two answers are compared.

    Attributes:
        asks: The criterion in words, for a judge that is a model.
        weight: Its weight among the criteria.
        value: (solution, answer) -> a number, for the judge that is a program: the higher one is better.
    """

    asks: str
    weight: float
    value: Callable[[str, str], float]


def _result(solution: str, answer: str) -> float:
    from keepworth.worlds.verifiers import last_value

    return float(last_value(answer) == last_value(solution))


def _right_steps(solution: str, answer: str) -> float:
    return sum(one == other for one, other in zip(solution.split(", "), answer.split(", "), strict=False))


def _brevity(solution: str, answer: str) -> float:
    return -max(0, len(answer.split()) - len(solution.split()))


CRITERIA = (
    Criterion("The value of its last step is right.", 4.0, _result),
    Criterion("More of its steps are right.", 2.0, _right_steps),
    Criterion("It has fewer words that are not needed.", 1.0, _brevity),
)

_COMPARE = """Question: {question}
A right answer: {solution}
Answer 1: {first}
Answer 2: {second}

Which answer is better by each criterion?
{criteria}
Answer with JSON, one number for each criterion: 1 where answer 1 is better, -1 where answer 2 is, 0 where neither is, such as \
{{"1": 0, "2": 1}}."""


def programs() -> Service:
    """Returns the judge without a model: it computes each criterion for both answers."""
    from keepworth.training.collect.later_rewards import Service

    def compare(texts: Sequence[str]) -> list[list[int]]:
        verdicts = []
        for pair in map(json.loads, texts):
            solution = pair["solution"]
            values = [(of.value(solution, pair["first"]), of.value(solution, pair["second"])) for of in CRITERIA]
            verdicts.append([(one > other) - (one < other) for one, other in values])
        return verdicts

    return Service("programs/1", compare)


def reading(chat: ChatModel) -> Service:
    """Returns the judge that is a chat model. It raises ChatError where a reply has no verdict on each criterion."""
    from keepworth.training.collect.later_rewards import Service

    criteria = "\n".join(f"{number}. {criterion.asks}" for number, criterion in enumerate(CRITERIA, start=1))
    version = hashlib.sha256((_COMPARE + criteria).encode()).hexdigest()[:8]

    def verdict(text: str) -> list[int]:
        from keepworth.base.model_errors import ChatError

        prompt = _COMPARE.format(criteria=criteria, **json.loads(text))
        reply = chat.complete_json([{"role": "user", "content": prompt}])
        signs: list[Any] = [reply.get(str(number)) for number in range(1, len(CRITERIA) + 1)]
        if any(isinstance(sign, bool) or sign not in (-1, 0, 1) for sign in signs):
            raise ChatError(f"{chat.model} compared with {reply!r:.80}, which is not -1, 0 or 1 for each criterion.")
        return signs

    def compare(texts: Sequence[str]) -> list[list[int]]:
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(AT_ONCE) as pool:
            return list(pool.map(verdict, texts))

    return Service(f"{chat.model}/{version}", compare)


def keeps_words(task: Task, answer: str) -> bool:
    """Returns whether an answer is not empty and has only words of the question: functions only move words."""
    words = set(re.findall(r"\w+", answer))
    return bool(words) and words <= set(re.findall(r"\w+", task.input))


async def guard(task: Task, episodes: Sequence[Episode], services: Services) -> list[float]:
    """Returns 1 for an answer that passes the gate, else 0.

    Args:
        task: The question of all answers.
        episodes: The group, with one answer each.
        services: Not used, as the gate is a rule.
    """
    return [float(keeps_words(task, episode.answer)) for episode in episodes]


async def wins(task: Task, episodes: Sequence[Episode], services: Services) -> list[float]:
    """Returns (1 + m) / 2 for each answer, with its mean margin m over the others, from 0 (it loses to all, by each criterion) to
    1. An answer that fails the gate is not compared and gets 0, like one that loses to all.

    Args:
        task: The question of all answers.
        episodes: The group, with one answer each.
        services: They ask the judge, once for each ordered pair.
    """
    from keepworth.methods.recipes._strings import worked_out

    answers = {number: episode.answer for number, episode in enumerate(episodes) if keeps_words(task, episode.answer)}
    pairs = [(one, other) for one in answers for other in answers if one != other]
    asked = {"question": task.input, "solution": worked_out(task)}
    texts = [json.dumps({**asked, "first": answers[one], "second": answers[other]}) for one, other in pairs]
    verdicts = await services.ask(JUDGE, texts)
    total = sum(criterion.weight for criterion in CRITERIA)
    margin = {
        pair: sum(criterion.weight * sign for criterion, sign in zip(CRITERIA, signs, strict=True)) / total
        for pair, signs in zip(pairs, verdicts, strict=True)
    }
    rewards = [0.0] * len(episodes)
    for one in answers:
        margins = [(margin[one, other] - margin[other, one]) / 2 for other in answers if other != one]
        rewards[one] = (1 + sum(margins) / max(1, len(margins))) / 2
    return rewards


def system(config: Config) -> System:
    from keepworth.base.chat import from_environment
    from keepworth.records import RewardTerm
    from keepworth.training.collect.later_rewards import LaterReward
    from keepworth.worlds.question import Question
    from keepworth.worlds.verifiers import verify

    def logged(task: Task, answer: str) -> tuple[RewardTerm, ...]:
        return (RewardTerm(task.verifier, verify(task, answer), weight=0.0),)

    plain = strings.system(config)
    if is_supervised(config):
        return replace(plain, hooks=NO_HOOKS)
    later = (
        LaterReward("rubric", wins, service=JUDGE, shaping=True),
        LaterReward("guard", guard, combine="gate", shaping=True),
    )
    judge = reading(from_environment(config.judge, "judge")) if config.judge else programs()
    return replace(
        plain,
        play=replace(plain.play, environment=lambda task: Question(logged)),
        hooks=Hooks(later=later, services={JUDGE: judge}),
    )


METHOD = recipe_method(
    name="open_rubrics",
    title="Open Rubric System",
    paper="arXiv 2602.14069",
    about="Compares the answers of a group pairwise by weighted criteria, in both orders, after a gate",
    differs=(
        "It trains on compositions of strings, with fixed criteria in place of those made for each pair, and "
        "programs judge unless a chat model is named."
    ),
    label="small",
    make=Recipe(Config, system),
)

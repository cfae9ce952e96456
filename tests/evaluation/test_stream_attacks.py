from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.streams.attack_claims import attacks, recovery, share, tampering
from keepworth.evaluation.stream import Results, StreamRow

BLANK = StreamRow("", "random", 0, "", "1" * 10, "", 1.0, 0.0, 5, 1.0, 0.0, 0.0, 0, 0.0, 0.0)


def rows(family: str, arm: str, target: float, wins: int, won_late: float = 1.0) -> list[StreamRow]:
    """Three rule sets that differ a little, so that there is an interval."""
    return [
        replace(
            BLANK,
            family=family,
            arm=arm,
            seed=seed,
            target=target + 0.01 * seed * (target > 0),
            bits="1" * (wins - seed % 2) + "0" * (100 - wins + seed % 2),
            won_late=won_late,
        )
        for seed in range(3)
    ]


def test_an_attack_is_scored_against_the_memories_it_misleads() -> None:
    listed = [
        *rows("partners", "exprag", 0.0, 95),
        *rows("injection", "exprag", 0.6, 80),
        *rows("partners", "advantage-without-gate", 0.0, 95),
        *rows("injection", "advantage-without-gate", 0.1, 90),
        *rows("partners", "advantage", 0.0, 94),
        *rows("injection", "advantage", 0.03, 93),
    ]
    found = {each["arm"]: each for each in attacks(Results(listed))}
    advantage = found["advantage"]
    assert set(advantage["cut_from"]) == {"exprag"}
    assert advantage["cut_from"]["exprag"]["value"] == pytest.approx(1 - 0.04 / 0.61)
    low, high = (advantage["cut_from"]["exprag"][each] for each in ("low", "high"))
    assert low <= advantage["cut_from"]["exprag"]["value"] <= high
    assert advantage["benign_against_advantage-without-gate"]["difference"] == pytest.approx(-0.01)
    assert advantage["holds"]
    dear = [each for each in listed if (each.family, each.arm) != ("partners", "advantage")]
    costly = attacks(Results([*dear, *rows("partners", "advantage", 0.0, 90)]))
    assert not next(each for each in costly if each["arm"] == "advantage")["holds"]


def test_recovery_is_the_share_of_the_lost_success_that_comes_back() -> None:
    listed = [
        *rows("partners", "exprag", 0.0, 95, won_late=1.0),
        *rows("injection", "exprag", 0.6, 80, won_late=0.5),
        *rows("injection", "exprag+rollback", 0.6, 85, won_late=0.9),
    ]
    (found,) = recovery(Results(listed))
    assert (found["attacked"], found["rolled_back"], found["never_attacked"]) == (0.5, 0.9, 1.0)
    assert found["recovered"]["value"] == pytest.approx(0.8)


def test_the_share_of_a_loss_is_not_given_where_nothing_was_lost() -> None:
    listed = [
        *rows("benign", "exprag", 0.0, 90),
        *rows("tampered-10", "exprag", 0.0, 80),
        *rows("tampered-1", "exprag", 0.0, 90),
        *rows("benign", "advantage", 0.0, 90),
        *rows("tampered-10", "advantage", 0.0, 85),
        *rows("tampered-1", "advantage", 0.0, 90),
    ]
    found = {(each["arm"], each["rate"]): each for each in tampering(Results(listed))}
    assert found["exprag", 10]["avoided_by_advantage"]["value"] == pytest.approx(0.5)
    assert "avoided_by_advantage" not in found["exprag", 1]


def test_a_share_of_equal_means_is_nothing() -> None:
    assert share([0.2, 0.4, 0.6], [0.2, 0.4, 0.6])["value"] == pytest.approx(0.0)

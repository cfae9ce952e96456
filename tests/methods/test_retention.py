"""Facts that are met a few times: what is counted, and both who may meet them."""

from __future__ import annotations

from pathlib import Path

import pytest

from keepworth.episodes.errors import KeepworthError
from keepworth.methods.studies.retention import draw_facts, recognised, run
from tests.end_to_end.tiny_folder import write_tiny_checkpoint


def test_recognition_is_the_share_of_lures_below_with_ties_as_half() -> None:
    assert [recognised(score, [1.0, 2.0, 3.0, 4.0]) for score in (0.0, 2.0, 2.5, 4.0, 9.0)] == [
        0.0,
        0.375,
        0.5,
        0.875,
        1.0,
    ]


def test_no_two_facts_are_about_one_thing_and_a_seed_draws_the_same() -> None:
    facts = draw_facts(500, 0)
    assert len({fact.cue for fact in facts}) == 500
    assert draw_facts(500, 0) == facts != draw_facts(500, 1)
    with pytest.raises(KeepworthError, match="facts, and 1000000 are needed"):
        draw_facts(1000000, 0)


@pytest.mark.parametrize("setting", [{"exposures": "3,1"}, {"exposures": "0,1"}, {"delays": "ten"}, {"facts": 2}])
def test_what_cannot_be_measured_is_refused(setting: dict[str, object]) -> None:
    with pytest.raises(KeepworthError, match=r"(exposures|delays|facts)="):
        run(encoder="hashing", **setting)  # type: ignore[arg-type]


def test_weights_learn_a_fact_by_repetition_and_a_memory_keeps_it_at_once(tmp_path: Path) -> None:
    model = write_tiny_checkpoint(tmp_path / "model")
    rows = run(facts=3, exposures="1,12", delays="0", encoder="hashing", model=str(model), rate=0.03)
    means = {row["arm"].replace(str(model), "tiny"): row["mean"] for row in rows}
    assert (
        means["memory, hybrid: recall, 1 times, after 0"] == means["memory, hybrid: recognition, 1 times, after 0"] == 1
    )
    assert means["memory, hybrid: recall, never met, after 0"] == 0
    assert means["weights of tiny: recall, never met, after 0"] == 0
    once, often = (means[f"weights of tiny: recognition, {many} times, after 0"] for many in (1, 12))
    assert once <= often

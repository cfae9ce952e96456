"""LoCoMo from a small file in its schema; the real one, which may not be shipped, is checked where KEEPWORTH_DATA names it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from keepworth.episodes.episode import Task
from keepworth.episodes.errors import UnknownName
from keepworth.methods.benchmarks.locomo import UNANSWERABLE, MissingData, find, locomo
from keepworth.tasks.entries import entries
from keepworth.tasks.splits import SPLITS


def conversation(index: int) -> dict[str, object]:
    return {
        "sample_id": f"conv-{index}",
        "conversation": {
            "speaker_a": "Ann",
            "speaker_b": "Bob",
            "session_1_date_time": "1:56 pm on 8 May, 2023",
            "session_1": [
                {"speaker": "Ann", "dia_id": "D1:1", "text": "I got a dog."},
                {"speaker": "Bob", "dia_id": "D1:2", "text": "Look!", "blip_caption": "a red bowl"},
            ],
            "session_2_date_time": "12:05 am on 1 June, 2023",
            "session_2": [{"speaker": "Ann", "dia_id": "D2:1", "text": "He is called Rex."}],
            "session_10_date_time": "12:09 pm on 13 September, 2023",
            "session_10": [{"speaker": "Bob", "dia_id": "D10:1", "text": "Hi."}],
            "session_11_date_time": "9:00 am on 14 September, 2023",
        },
        "qa": [
            {"question": "What is Ann's dog called?", "answer": "Rex", "evidence": ["D1:1; D2:1"], "category": 1},
            {"question": "When?", "answer": 2022, "evidence": ["D:2:1", "D", "D9:9"], "category": 2},
            {"question": "What did Ann cook?", "adversarial_answer": "soup", "evidence": ["D1:1"], "category": 5},
        ],
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "locomo").mkdir()
    with gzip.open(tmp_path / "locomo" / "locomo10.json.gz", "wt") as file:
        json.dump([conversation(index) for index in range(10)], file)
    return tmp_path


def test_tasks(folder: Path) -> None:
    first, second = locomo("train", data=folder)
    assert (first.key, first.input, first.answers) == ("locomo/locomo_0_qa0", "What is Ann's dog called?", ("Rex",))
    assert [s.date for s in first.sessions] == ["2023-05-08T13:56", "2023-06-01T00:05", "2023-09-13T12:09"]
    assert first.evidence == ("locomo_0_session_1", "locomo_0_session_2")
    assert [turn.evidence for turn in first.sessions[0].turns] == [True, False]
    assert first.sessions[0].turns[1].text == "Look! [shows a photo: a red bowl]"
    assert first.asked_at == "2023-09-13T12:09"
    assert first.sessions[2] is second.sessions[2]
    assert second.answers == ("2022",)
    assert second.evidence == ("locomo_0_session_2",)
    assert second.tags["unresolved"] == "D9:9 D"
    assert [task.tags["type"] for task in (first, second)] == ["multi-hop", "temporal"]
    assert {entry.speaker for entry in entries(first)} == {"Ann", "Bob"}


def test_splits_by_conversation(folder: Path) -> None:
    def numbers(split: str, protocol: str) -> list[str]:
        return sorted({task.tags["conversation"] for task in locomo(split, data=folder, protocol=protocol)})

    assert [numbers(split, "memory-r1") for split in SPLITS] == [["0"], ["1"], list("23456789")]
    assert [numbers(split, "wide") for split in SPLITS] == [list("012345"), ["6", "7"], ["8", "9"]]


def test_adversarial_only_on_request(folder: Path) -> None:
    (task,) = locomo("train", data=folder, categories=["adversarial"])
    assert task.answers == UNANSWERABLE
    assert task.tags["abstention"] == "true"
    assert "soup" not in repr(task)


def test_corrections(folder: Path) -> None:
    with pytest.raises(MissingData, match=r"corrected=True needs .*answer_key_errors.json, .*Get errors.json"):
        locomo("train", data=folder, corrected=True)
    faults = [
        {
            "question_id": "locomo_0_qa0", "question": "What is Ann's dog called?", "error_type": "WRONG_CITATION",
            "correct_evidence": ["D2:1"], "correct_answer": "Rex II",
        },
        {
            "question_id": "locomo_0_qa1", "question": "When?", "error_type": "TEMPORAL_ERROR",
            "correct_evidence": ["D1:2"], "correct_answer": "2021 (but the question says 2022)",
        },
    ]  # fmt: skip
    path = folder / "locomo" / "answer_key_errors.json"
    path.write_text(json.dumps(faults))
    first, second = locomo("train", data=folder, corrected=True)
    assert (first.answers, first.evidence) == (("Rex",), ("locomo_0_session_2",))
    assert first.tags["correction"] == "WRONG_CITATION"
    assert (second.answers, second.evidence) == (("2021",), ("locomo_0_session_1",))
    assert first.source == "locomo10-corrected"
    faults[0]["question"] = "Another?"
    path.write_text(json.dumps(faults))
    with pytest.raises(ValueError, match="locomo_0_qa0 is about 'Another\\?'"):
        locomo("train", data=folder, corrected=True)


def test_where_it_is_looked_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder / "locomo" / "locomo10.json.gz"
    assert find(folder) == find(folder / "locomo") == find(path) == path
    monkeypatch.setenv("KEEPWORTH_DATA", str(folder))
    assert find() == path
    monkeypatch.delenv("KEEPWORTH_DATA")
    with pytest.raises(MissingData, match=r"no place was named.*snap-research/locomo.*KEEPWORTH_DATA"):
        find()
    with pytest.raises(MissingData, match=r"looked for .*locomo10\.json\.gz.*snap-research/locomo"):
        find(folder / "nowhere")


@pytest.mark.parametrize(("options", "message"), [
    ({"split": "validation"}, "There is no split 'validation'"),
    ({"split": "train", "protocol": "memory_r1"}, "Did you mean 'memory-r1'"),
    ({"split": "train", "categories": ["temporl"]}, "Did you mean 'temporal'"),
])  # fmt: skip
def test_unknown_names(folder: Path, options: dict[str, object], message: str) -> None:
    with pytest.raises(UnknownName, match=message):
        locomo(data=folder, **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def real() -> Path:
    try:
        return find()
    except MissingData as error:
        pytest.skip(f"the real LoCoMo file is needed: {error}")


def of_all_sides(real: Path, **options: Any) -> list[Task]:
    return [task for split in SPLITS for task in locomo(split, data=real, **options)]


def test_answers_are_texts_and_adversarial_questions_stand_apart(real: Path) -> None:
    """How many each side has is asked of all benchmarks."""
    tasks = of_all_sides(real)
    assert not any(task.tags["type"] == "adversarial" for task in tasks)
    assert all(isinstance(answer, str) for task in tasks for answer in task.answers)
    assert len(of_all_sides(real, categories=["adversarial"])) == 446


def test_the_audit_fits_the_data(real: Path) -> None:
    if not (real.parent / "answer_key_errors.json").is_file():
        pytest.skip(f"answer_key_errors.json is not next to {real}")
    corrected = of_all_sides(real, corrected=True)
    assert sum(task.tags["correction"] != "" for task in corrected) == 156

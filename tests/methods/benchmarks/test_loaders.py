"""What is particular to the loaders of benchmarks, on small files in their public shape; LoCoMo's own file where there is one."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from keepworth.base.errors import KeepworthError, UnknownName
from keepworth.methods.benchmarks.banking77 import banking77
from keepworth.methods.benchmarks.bfcl_memory import bfcl_memory
from keepworth.methods.benchmarks.lifelong_agent_bench import lifelong_agent_bench
from keepworth.methods.benchmarks.locomo import UNANSWERABLE, find, locomo
from keepworth.methods.benchmarks.longmemeval import longmemeval_file
from keepworth.methods.benchmarks.longmemeval_v2 import longmemeval_v2
from keepworth.methods.benchmarks.memory_agent_bench import memory_agent_bench
from keepworth.methods.benchmarks.memory_arena import memory_arena
from keepworth.methods.benchmarks.multihop import hotpotqa, two_wiki
from keepworth.methods.benchmarks.prefeval import prefeval
from keepworth.methods.benchmarks.tau2_bench import tau2_bench
from keepworth.methods.benchmarks.time_ranges import time_ranges
from keepworth.methods.benchmarks.timebench import QUESTIONS, timebench, timebench_choices
from keepworth.methods.benchmarks.word_problems import gsm8k, math500, svamp
from keepworth.records.episode import Task
from keepworth.worlds.benchmark import find_benchmark, refuse_leaks
from keepworth.worlds.data_files import MissingData, WrongFormat
from keepworth.worlds.data_sets.arithmetic import arithmetic
from keepworth.worlds.entries import entries
from keepworth.worlds.splits import SPLITS
from keepworth.worlds.verifiers import verify
from tests.methods.benchmarks import fixtures


def test_another_format_is_refused(tmp_path: Path) -> None:
    fixtures.lines(tmp_path / "hotpotqa" / "train.jsonl.gz", [{"preference": "x", "mcq": {}}])
    for part in ("dev", "test"):
        fixtures.lines(tmp_path / "hotpotqa" / f"{part}.jsonl.gz", [fixtures.multihop(part)])
    with pytest.raises(WrongFormat, match=r"line 1: there is no 'id'.*no file of HotpotQA"):
        hotpotqa("train", data=tmp_path)
    with pytest.raises(WrongFormat, match=r"is one file; HotpotQA has several.*Name the folder"):
        hotpotqa("train", data=tmp_path / "hotpotqa" / "dev.jsonl.gz")
    path = tmp_path / "prefeval.json"
    path.write_text("{")
    with pytest.raises(WrongFormat, match="is no JSON"):
        prefeval("test", data=path)
    path.write_text(json.dumps([fixtures.multihop("A")]))
    with pytest.raises(WrongFormat, match="no file of PrefEval"):
        prefeval("test", data=path)


def test_a_file_in_the_place_of_a_name_is_refused(tmp_path: Path) -> None:
    fixtures.longmemeval_file(tmp_path)
    path = tmp_path / "longmemeval" / "longmemeval_s_cleaned.json"
    with pytest.raises(WrongFormat, match="Questions of your own"):
        find_benchmark(str(path))
    assert longmemeval_file("train", data=path)
    with pytest.raises(WrongFormat, match=r"NAME\.jsonl"):
        find_benchmark("nowhere.json")
    with pytest.raises(UnknownName, match="Did you mean 'hotpotqa'"):
        find_benchmark("hotpot-qa")


# Each family.


def test_supporting_sentences_are_evidence_and_the_test_side_stays_whole(tmp_path: Path) -> None:
    fixtures.multihop_folder(tmp_path, "hotpotqa")
    sides = {split: hotpotqa(split, data=tmp_path) for split in SPLITS}
    # B and D share a supporting paragraph with F, which is on a later side.
    assert ["".join(task.key[-1] for task in found) for found in sides.values()] == ["A", "C", "EF"]
    task = sides["train"][0]
    said = [(turn.speaker, turn.text) for session in task.sessions for turn in session.turns if turn.evidence]
    assert sorted(said) == [("RunA", "RunA is 401 km long."), ("Town A", "It lies on the river RunA.")]
    assert task.tags["type"] == "bridge-comparison"
    fixtures.multihop_folder(tmp_path, "2wikimultihopqa")
    one, two = two_wiki("test", data=tmp_path, pooled=True)
    assert [session.id for session in one.sessions] == [session.id for session in two.sessions]
    assert len(one.sessions) == 11
    assert one.evidence != two.evidence


def test_bfcl_finds_the_quoted_sentence_and_scores_as_the_leaderboard(tmp_path: Path) -> None:
    fixtures.bfcl(tmp_path)
    dog, daycare = bfcl_memory("train", data=tmp_path)
    for task, wanted in ((dog, "Rex0"), (daycare, "Daycare")):
        (said,) = [turn.text for session in task.sessions for turn in session.turns if turn.evidence]
        assert wanted in said
    assert len(dog.sessions) == 2
    assert verify(dog, "His name is *REX0*, I think.") == 1.0
    assert verify(dog, "Rex01") == 0.0
    assert len(bfcl_memory("test", data=tmp_path)) == 6
    assert {task.tags["type"] for task in bfcl_memory("test", data=tmp_path)} == {"finance", "healthcare", "student"}


def test_preference_comes_first_in_a_neutrally_named_session(tmp_path: Path) -> None:
    fixtures.prefeval(tmp_path)
    task = prefeval("test", data=tmp_path, distractors=3)[0]
    assert [any(turn.evidence for turn in session.turns) for session in task.sessions] == [True, False, False, False]
    assert task.sessions[0].date < task.sessions[1].date < task.asked_at
    assert {len(session.id) for session in task.sessions} == {13}
    more = prefeval("test", data=tmp_path, distractors=5)[0]
    assert {session.id for session in task.sessions} < {session.id for session in more.sessions}
    with pytest.raises(KeepworthError, match="distractors=-1"):
        prefeval("test", data=tmp_path, distractors=-1)


def test_timebench_tells_facts_and_asks(tmp_path: Path) -> None:
    fixtures.timebench(tmp_path)
    every = [task for split in SPLITS for task in timebench(split, data=tmp_path)]
    assert len(every) == 20 * len(QUESTIONS)
    fact = next(task for task in every if task.tags["type"] == "tempreason_l2")
    (said,) = [turn.text for turn in fact.sessions[0].turns if turn.evidence]
    assert said.endswith("from 1985.")
    article = next(task for task in every if task.tags["type"] == "timeqa_easy")
    assert article.sessions[0].turns[0].speaker.startswith("TimeqaEasy Person")
    assert {task.tags["abstention"] for task in every if task.tags["type"].startswith("menatqa")} == {"true"}
    few = timebench("test", data=tmp_path, tasks=("timeqa_hard",))
    hard = [task for task in timebench("test", data=tmp_path) if task.tags["type"] == "timeqa_hard"]
    assert [task.key for task in few] == [task.key for task in hard]
    assert timebench("test", data=tmp_path, tasks=("tempreason_l1",))[0].sessions == ()
    with pytest.raises(UnknownName, match="Did you mean 'timeqa_hard'"):
        timebench("test", data=tmp_path, tasks=("timeqa_hards",))
    choices = [task for split in SPLITS for task in timebench_choices(split, data=tmp_path)]
    assert len(choices) == 3 * 19 + 4 * 20  # one of each has only right options
    dial = next(task for task in choices if task.tags["type"] == "timedial_f2")
    assert dial.answers == ("a day", "a minute")
    assert "it took <MASK>" in dial.input


def test_only_intervals_with_both_ends_are_asked(tmp_path: Path) -> None:
    fixtures.time_ranges(tmp_path)
    sides = {split: time_ranges(split, data=tmp_path, memories=5) for split in SPLITS}
    known = {turn.text for session in sides["test"][0].sessions for turn in session.turns}
    assert len(known) == 5
    assert sum(map(len, sides.values())) < 40
    assert all(task.answers[0].count("/") == 1 and task.tags["type"] == "days" for task in sides["test"])
    task = sides["test"][0]
    start, end = task.answers[0].split("/")
    assert verify(task, f"From {start} to {end}.") == 1.0
    assert verify(task, f"{start[:10]}/{start[:10]}") == 1.0  # a day alone is all of it
    assert verify(task, start) == 0.0


def test_remembered_rows_are_absent_from_the_questions(tmp_path: Path) -> None:
    fixtures.math500(tmp_path)
    fixtures.lines(tmp_path / "gsm8k" / "train.jsonl", [
        {"question": task.input, "answer": f"<<1+1=2>>So it is.\n#### {task.answers[0]}"}
        for task in arithmetic("gsm8k", "train")
    ])  # fmt: skip
    loads: dict[Any, dict[str, Any]] = {gsm8k: {"data": tmp_path}, svamp: {}, math500: {"data": tmp_path}}
    for load, options in loads.items():
        sides = {split: load(split, memories=10_000, **options) for split in SPLITS}
        refuse_leaks(sides)
        told = " ".join(turn.text for session in sides["test"][0].sessions for turn in session.turns)
        assert sides["train"][0].sessions == sides["test"][0].sessions
        assert not any(f"{task.input}\n" in told for found in sides.values() for task in found), load
        assert "<<" not in told
        assert not any("equation" in task.tags for task in sides["test"])
    assert len(gsm8k("test", data=tmp_path)) == 1319
    assert len(gsm8k("test", data=tmp_path)[0].sessions) == 500
    (tmp_path / "gsm8k" / "train.jsonl").write_text('{"question": "x", "answer": "#### 1"}\n')
    with pytest.raises(WrongFormat, match="has no solution of the problem"):
        gsm8k("test", data=tmp_path)
    assert verify(math500("test", data=tmp_path)[0], math500("test", data=tmp_path)[0].answers[0]) == 1.0


def test_labels_have_numbers_and_sides_of_their_own(tmp_path: Path) -> None:
    fixtures.banking77(tmp_path)
    sides = {split: banking77(split, data=tmp_path, examples=2) for split in SPLITS}
    intents = [{task.tags["type"] for task in found} for found in sides.values()]
    assert sum(map(len, intents)) == len(set.union(*intents)) == 60
    assert sum(map(len, sides.values())) == 180
    task = sides["train"][0]
    assert len(task.evidence) == 2
    assert len(task.sessions) == 2 * len(intents[0])
    told = [turn.text for session in task.sessions for turn in session.turns if turn.evidence]
    assert all(task.tags["type"][6:] in text and text.endswith(f"has {task.answers[0]}.") for text in told)
    assert banking77("train", data=tmp_path, named=True)[0].answers[0].startswith("topic ")


def test_another_edition_of_longmemeval_hides_which_session_holds_the_answer(tmp_path: Path) -> None:
    fixtures.longmemeval_file(tmp_path)
    every = [task for split in SPLITS for task in longmemeval_file(split, data=tmp_path)]
    assert len(every) == 29  # one is to be declined
    task = every[0]
    assert not any("answer" in session.id for session in task.sessions)
    assert [session.date for session in task.sessions] == ["2023-05-10T02:21", "2023-05-20T02:21"]
    assert task.evidence == (task.sessions[1].id,)
    with_those = [task for split in SPLITS for task in longmemeval_file(split, data=tmp_path, abstention=True)]
    assert len(with_those) == 30


def test_the_second_version_of_longmemeval_is_read_from_its_three_files(tmp_path: Path) -> None:
    fixtures.longmemeval_v2(tmp_path)
    every = [task for split in SPLITS for task in longmemeval_v2(split, data=tmp_path)]
    assert len(every) == 29  # one has a picture
    task = every[0]
    assert [turn.text for turn in task.sessions[0].turns] == [
        "The goal is: buy",
        "At: http://shop Thought: a sale Action: click Page: Lamps. Chairs.",
        "The outcome was: success",
    ]
    assert task.tags["judged by"] == "norm_phrase_set_match"
    fixtures.lines(tmp_path / "longmemeval-v2" / "trajectories.jsonl", [{"id": "t0", "states": []}])
    with pytest.raises(WrongFormat, match="has no trajectory t"):
        longmemeval_v2("test", data=tmp_path)


def test_sets_of_others_for_agents(tmp_path: Path) -> None:
    fixtures.memory_agent_bench(tmp_path)
    one, two = memory_agent_bench("test", data=tmp_path)[:2]
    assert one.sessions[0] is two.sessions[0]
    assert [turn.text for turn in one.sessions[0].turns][1].endswith("is red.")
    assert one.answers == ("blue", "Blue")
    assert one.tags["type"] == "factconsolidation_sh_6k"
    with pytest.raises(MissingData, match=r"Accurate_Retrieval\.jsonl"):
        memory_agent_bench("test", data=tmp_path, competency="Accurate_Retrieval")

    fixtures.memory_arena(tmp_path)
    first, second, third = memory_arena("test", data=tmp_path)[:3]
    assert [len(task.sessions) for task in (first, second, third)] == [1, 2, 3]
    assert first.answers[0].startswith("B0")
    assert f"What was right: {first.answers[0]}" in [turn.text for turn in second.sessions[1].turns]
    assert (second.verifier, third.verifier) == ("contains_answer", "token_f1")

    fixtures.lifelong_agent_bench(tmp_path)
    sides = {split: lifelong_agent_bench(split, data=tmp_path, memories=5) for split in SPLITS}
    assert sum(map(len, sides.values())) == 35
    assert verify(sides["test"][0], sides["test"][0].answers[0].lower()) == 1.0
    path = tmp_path / "lifelongagentbench" / "db_bench.json"
    fixtures.whole(path, {"0": {"instruction": "x", "evaluation_info": {}, "skill_list": []}})
    with pytest.raises(WrongFormat, match="operating system"):
        lifelong_agent_bench("test", data=tmp_path)

    fixtures.tau2(tmp_path)
    sides = {split: tau2_bench(split, data=tmp_path, memories=4) for split in SPLITS}
    assert len(sides["test"]) == 10
    assert sum(map(len, sides.values())) == 36
    assert sides["test"][0].answers == ("find_user; cancel_order",)
    assert "Cancel order W30. I am Ann. Which tools" in sides["test"][0].input
    assert sides["test"][0].sessions[0].turns[-1].text == "Cancel only orders that are pending."
    assert verify(sides["test"][0], "cancel_order; find_user") == 1.0


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

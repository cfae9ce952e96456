"""`keepworth eval run`, `list` and `compare` on questions of one's own, and what they refuse."""

from __future__ import annotations

import json
import re
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from keepworth.base.errors import KeepworthError
from keepworth.cli.eval_run import reader_of
from keepworth.cli.main import app
from keepworth.evaluation.harness import EvaluationFolder, Row
from keepworth.evaluation.run import arms_of
from keepworth.worlds.benchmark import LeakingSplit
from keepworth.worlds.data_files import WrongFormat
from keepworth.worlds.json_lines import json_lines


def lines(count: int = 8) -> list[dict[str, object]]:
    return [
        {
            "id": f"chat-{number}",
            "writes": [
                {"id": "home", "text": f"I live in town number {number}.", "time": "2026-01-03T10:00"},
                {"text": "I had soup for lunch."},
                {"text": "The weather is fine today."},
            ],
            "questions": [{"text": "In which town do I live?", "answers": [str(number)], "evidence": ["home"]}],
        }
        for number in range(count)
    ]


def saved(path: Path, records: list[dict[str, object]]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def called(*words: object) -> str:
    result = CliRunner().invoke(app, ["eval", *map(str, words)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def ran(path: Path, out: Path, *words: object) -> str:
    return called("run", path, *words, "--reader", "none", "--encoder", "hashing:256", "--out", out)


def test_own_questions_are_evaluated_and_resumed(tmp_path: Path) -> None:
    path, out = saved(tmp_path / "mine.jsonl", lines()), tmp_path / "out"
    arms = ("none", "bm25", "search", "keepworth", "random")
    ran(path, out, *arms)
    summary = json.loads((out / "summary.json").read_text())
    assert summary["benchmark"] == "mine"
    assert summary["arms"]["bm25"]["evidence"]["turn@1"]["mean"] == 1.0
    assert summary["arms"]["none"]["evidence"]["turn@1"]["mean"] == 0.0
    rows = (out / "rows.jsonl").read_text()
    ran(path, out, *arms)
    assert (out / "rows.jsonl").read_text() == rows  # nothing was asked again
    assert json.loads(ran(path, out, *arms, "--json")) == summary


def one_memory(count: int = 12) -> list[dict[str, object]]:
    """Return a file of one memory with a question for each of its notes."""
    writes = [
        {"id": f"n{number}", "text": f"The code of room {number} is {7 * number + 11}."} for number in range(count)
    ]
    questions = [
        {"text": f"What is the code of room {number}?", "answers": [str(7 * number + 11)], "evidence": [f"n{number}"]}
        for number in range(count)
    ]
    return [{"id": "mine", "writes": writes, "questions": questions}]


def test_one_memory_has_intervals_over_its_questions_and_they_stand_on_the_page(tmp_path: Path) -> None:
    path, out = saved(tmp_path / "mine.jsonl", one_memory()), tmp_path / "out"
    said = " ".join(ran(path, out, "none", "bm25", "latest").split())
    assert "12 questions of this one memory" in said
    assert "they say how sure a number is for this memory" in said
    assert "tells no memory from another" in said  # all twelve notes fit into the budget
    cell = json.loads((out / "summary.json").read_text())["arms"]["latest"]["evidence"]["turn@1"]
    assert (cell["mean"], cell["clusters"]) == (pytest.approx(1 / 12), 12)
    assert cell["high"] < 0.6  # not the whole range
    page = (out / "report.html").read_text()
    assert page.count("What is the code of room 7?") == 1
    assert "turn@1" in page


def test_evidence_is_counted_where_a_question_names_some(tmp_path: Path) -> None:
    records = lines()
    records[0]["questions"] = [*records[0]["questions"], {"text": "What is my car?", "unanswerable": True}]  # type: ignore[misc]
    shown = ran(saved(tmp_path / "mine.jsonl", records), tmp_path / "out", "none", "bm25")
    assert re.search(r"questions with evidence +8\b", shown)
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["arms"]["bm25"]["questions"] == 9


def test_one_evaluation_is_not_continued_with_other_data_and_not_compared_with_it(tmp_path: Path) -> None:
    one, other = saved(tmp_path / "one.jsonl", lines()), saved(tmp_path / "two.jsonl", lines(9))
    ran(one, tmp_path / "one", "bm25", "random")
    ran(other, tmp_path / "two", "bm25")
    with pytest.raises(KeepworthError, match=r"another|other benchmark"):
        ran(other, tmp_path / "one", "bm25")
    with pytest.raises(KeepworthError, match="not alike: benchmark: one and two"):
        called("compare", tmp_path / "one:bm25", tmp_path / "two:bm25")


@pytest.mark.parametrize("text", ["", "[]", "[" * 5000])
def test_a_plan_that_cannot_be_read_is_named(tmp_path: Path, text: str) -> None:
    mine = saved(tmp_path / "mine.jsonl", lines())
    ran(mine, tmp_path / "out", "bm25")
    (tmp_path / "out" / "plan.json").write_text(text)
    for command in (
        partial(ran, mine, tmp_path / "out", "bm25"),
        partial(called, "compare", tmp_path / "out", tmp_path / "out"),
    ):
        with pytest.raises(KeepworthError, match=r"plan\.json .*(Give another folder|Remove the folder)"):
            command()


def evaluated(folder: Path, arms: dict[str, tuple[str, str, list[float]]]) -> Path:
    """A finished evaluation of eight questions. arms: by any name, a system, a setting and its scores."""
    kept = EvaluationFolder(folder, {"benchmark": "mine", "tokens": 512})
    for system, setting, scores in arms.values():
        for n, score in enumerate(scores):
            kept.keep(Row(f"q{n}", f"c{n}", "", system, setting, 0, scores={"score": score}))
    note = {"benchmark": "mine", "split": "test", "arms": {}, "gains": {}}
    (folder / "summary.json").write_text(json.dumps(note))
    return folder


def test_arms_with_colons_and_folders_of_one_name_are_compared(tmp_path: Path) -> None:
    good, poor = [1.0] * 8, [0.0] * 8
    one = evaluated(tmp_path / "A" / "mine:x", {"p": ("policy:exprag", "live", good), "b": ("bm25", "frozen", poor)})
    two = evaluated(tmp_path / "B" / "mine:x", {"p": ("policy:exprag", "live", poor), "c": ("dense", "frozen", poor)})
    share = 0.025 ** (1 / 8)
    said = called("compare", f"{one}:policy:exprag+live", f"{one}:bm25")
    assert said.startswith(f"policy:exprag+live - bm25: +1.000 [{2 * share - 1:+.3f}, +1.000], p 0.00781")
    assert said.endswith("ahead\n")
    for words in ((one, two), (f"{one}:policy:exprag+live", f"{two}:policy:exprag+live")):
        said = called("compare", *words)
        assert said.startswith("A/mine:x:policy:exprag+live - B/mine:x:policy:exprag+live: +1.000")
        assert said.count("clusters") == 1
    assert called("compare", one, one).count("clusters") == 1  # each pair once
    with pytest.raises(KeepworthError, match="have nothing to compare"):
        called("compare", f"{one}:bm25", f"{one}:bm25")
    with pytest.raises(KeepworthError, match="has no arm 'nobody'"):
        called("compare", f"{one}:nobody", one)
    with pytest.raises(KeepworthError, match="names no evaluation"):
        called("compare", tmp_path / "nothing:bm25", one)


def test_an_evaluation_that_is_not_finished_is_not_compared(tmp_path: Path) -> None:
    one = evaluated(tmp_path / "one", {"a": ("a", "frozen", [1.0] * 8), "b": ("b", "frozen", [0.0] * 8)})
    silent = evaluated(tmp_path / "silent", {"a": ("a", "frozen", []), "b": ("b", "frozen", [])})
    for name in "ab":
        EvaluationFolder(silent, {"benchmark": "mine", "tokens": 512}).keep(Row("q", "c", "", name, "frozen", 0))
    with pytest.raises(KeepworthError, match="no answer of these was scored"):
        called("compare", f"{silent}:a", f"{silent}:b")
    (one / "summary.json").unlink()
    with pytest.raises(KeepworthError, match=r"one is not finished\. Give its command again"):
        called("compare", f"{one}:a", f"{one}:b")


def test_missing_run_error_names_the_command_that_makes_it(tmp_path: Path) -> None:
    with pytest.raises(KeepworthError, match=r"There is no run 'demo'.*`keepworth demo` makes it"):
        reader_of("run:demo", "", "", tmp_path)


def test_sign_test_with_few_clusters_names_no_winner(tmp_path: Path) -> None:
    one = evaluated(tmp_path / "one", {"a": ("a", "frozen", [1.0, 0.9, 1.0]), "b": ("b", "frozen", [0.0] * 3)})
    assert "p 0.25 after correction, 3 clusters: no difference can be told" in called("compare", f"{one}:a", f"{one}:b")


@pytest.mark.parametrize(("name", "value"), [("verifier", "exact_match"), ("cluster", "one"), ("type", "city")])
def test_other_verifiers_clusters_and_labels_are_another_evaluation(tmp_path: Path, name: str, value: str) -> None:
    path, out = saved(tmp_path / "mine.jsonl", lines()), tmp_path / "out"
    ran(path, out, "none", "random")
    records: list[Any] = lines()
    (records[1] if name == "cluster" else records[1]["questions"][0])[name] = value
    with pytest.raises(KeepworthError, match=r"an evaluation with other scoring\."):
        ran(saved(path, records), out, "none", "random")
    ran(saved(path, lines()), out, "none", "random")


def test_option_without_effect_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, out = saved(tmp_path / "mine.jsonl", lines()), tmp_path / "out"
    with pytest.raises(KeepworthError, match=r"--set has no effect on .*mine\.jsonl"):
        ran(path, out, "none", "--set", "foo=3")
    for name in (str(path), "needles"):
        with pytest.raises(KeepworthError, match=f"--data has no effect on {name}"):
            ran(Path(name), out, "none", "--data", "/nowhere")
    assert not out.exists()
    monkeypatch.setenv("KEEPWORTH_DATA", str(tmp_path))  # for what needs it
    ran(path, out, "none", "random")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"write": []}, "there is no field 'write'"),
        ({"writes": [{"text": ""}]}, "line 1, write 1: its text is empty"),
        ({"writes": [{"id": "a", "text": "x"}, {"id": "a", "text": "y"}]}, "the id 'a' is taken"),
        ({"questions": []}, "there is no question"),
        ({"questions": [{"text": "q", "answers": []}]}, "there is no right answer"),
        ({"questions": [{"text": "q", "answers": ["a"], "options": ["b"]}]}, "none of its options"),
        ({"questions": [{"text": "q", "answers": ["a"], "evidence": ["z"]}]}, "evidence names 'z'"),
        ({"questions": [{"text": "q", "answers": ["a"], "verifier": "nobody"}]}, "there is no verifier 'nobody'"),
        ({"questions": [{"answers": ["a"]}]}, "'text' is missing"),
        ({"split": "tset"}, "split is 'tset'"),
    ],
)
def test_a_file_that_is_wrong_is_refused_by_name(tmp_path: Path, change: dict[str, object], message: str) -> None:
    path = saved(tmp_path / "bad.jsonl", [{**lines(1)[0], **change}])
    with pytest.raises(WrongFormat, match=re.escape(message)):
        json_lines("test", data=path)


def test_a_file_that_is_no_file_of_lines_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    for text, message in ((None, "is no file"), ("[{}]", "record 1: 'writes' is missing"), ("\n\n", "holds no line")):
        if text is not None:
            path.write_text(text)
        with pytest.raises(WrongFormat, match=message):
            json_lines("test", data=path)


def test_file_with_leaking_splits_is_refused(tmp_path: Path) -> None:
    records = [{**record, "split": side} for record, side in zip(lines(2), ("train", "test"), strict=True)]
    assert [task.tags["split"] for task in json_lines("train", data=saved(tmp_path / "s.jsonl", records))] == ["train"]
    leaking = [*records, {**records[0], "id": "again", "split": "test"}]
    with pytest.raises(LeakingSplit, match="question"):
        ran(saved(tmp_path / "leak.jsonl", leaking), tmp_path / "out", "bm25")
    with pytest.raises(LeakingSplit, match="chat-0"):
        json_lines("test", data=saved(tmp_path / "id.jsonl", [*records, {**records[0], "split": "dev"}]))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nobody"], "no system 'nobody'"),
        (["policy:nobody"], "no policy 'nobody'"),
        (["bm25", "bm25"], "named twice"),
        (["bm25", "--setting", "warm"], "no setting 'warm'"),
        (["bm25", "--setting", "live"], "no answer earns"),
        (["bm25", "--setting", "frozen,shuffled"], "no answer earns"),
        (["bm25", "--judge", "m"], "Give its URL as --reader"),
        (["bm25", "--model", "m"], "for an endpoint"),
    ],
)
def test_unmeasurable_input_is_refused_before_running(tmp_path: Path, words: Any, message: str) -> None:
    path = saved(tmp_path / "mine.jsonl", lines(2))
    with pytest.raises(KeepworthError, match=message):
        ran(path, tmp_path / "out", *words)
    assert not (tmp_path / "out").exists()


def test_no_memory_is_asked_under_any_settings_and_counts_in_the_plan() -> None:
    names = ["none", "bm25"]
    assert arms_of(names, ["live"]) == [("none", "frozen"), ("bm25", "live")]
    assert arms_of(names, ["frozen", "live"]) == [("none", "frozen"), ("bm25", "frozen"), ("bm25", "live")]
    assert arms_of(names, ["oracle"]) == [("none", "frozen"), ("none", "oracle")]
    assert arms_of(["bm25"], ["live", "shuffled"]) == [("bm25", "live"), ("bm25", "shuffled")]


def test_output_names_arms_over_budget_and_the_needed_clusters(tmp_path: Path) -> None:
    arms = ("none", "bm25", "latest", "full", "--tokens", 6)
    said = " ".join(ran(saved(tmp_path / "mine.jsonl", lines(6)), tmp_path / "out", *arms).split())
    assert "At most 6 tokens are shown, but for full." in said
    assert "too few for a verdict of 3 comparisons: 7 clusters are needed" in said


def test_the_list_names_benchmarks_systems_and_settings() -> None:
    text = called("list", "--details")
    for name in ("locomo", "longmemeval", "bm25", "keepworth", "shuffled", "distractors="):
        assert name in text


def test_a_stream_is_measured_by_a_command_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(KeepworthError, match="keepworth eval stream --streams near-miss"):
        called("run", "near-miss", "none", "--out", tmp_path)


def test_a_program_that_never_answers_is_named_after_the_others_were_measured(tmp_path: Path) -> None:
    path, out = saved(tmp_path / "mine.jsonl", lines()), tmp_path / "out"
    with pytest.raises(KeepworthError, match=r"was not measured: .*ended with code 3"):
        ran(path, out, "none", f"command:{sys.executable} -I -c exit(3)", "bm25")
    assert set(json.loads((out / "summary.json").read_text())["arms"]) == {"none", "bm25"}
    assert (out / "report.html").exists()


def test_stopped_evaluation_states_the_rest_and_resumes(tmp_path: Path, monkeypatch: Any) -> None:
    def stopped(self: EvaluationFolder, row: Row) -> None:
        kept(self, row)
        if row.key.startswith("mine/chat-2"):
            raise KeyboardInterrupt

    path, out, kept = saved(tmp_path / "mine.jsonl", lines()), tmp_path / "out", EvaluationFolder.keep
    monkeypatch.setattr(EvaluationFolder, "keep", stopped)
    words = ["run", str(path), "none", "bm25", "--reader", "none", "--encoder", "hashing:256", "--out", str(out)]
    first = CliRunner().invoke(app, ["eval", *words])
    assert first.exit_code == 130
    assert "The same command continues with what is missing." in first.output
    assert 0 < len((out / "rows.jsonl").read_text().splitlines()) < 16
    monkeypatch.undo()
    called(*words)
    assert len((out / "rows.jsonl").read_text().splitlines()) == 16


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--setting", "oracle"], "nothing says which attempts would help"),
        (["--judge", "m"], "brings its own rewards"),
        (["--reader", "none"], "is played by a model"),
        (["--data", "."], "--data has no effect"),
        (["--split", "train"], "are tried before a question is asked"),
        (["--set", "attempt=3"], "no setting 'attempt'"),
        (["--set", "max_tokens=0"], "max_tokens is 1 or more"),
    ],
)
def test_an_option_that_a_taskset_cannot_heed_is_refused(words: list[str], message: str) -> None:
    outcome = CliRunner().invoke(app, ["eval", "run", "verifiers:games", *words])
    assert isinstance(outcome.exception, KeepworthError)
    assert message in str(outcome.exception)

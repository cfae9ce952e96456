"""Small files in the public shapes of data sets, of our own making."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def lines(path: Path, records: Iterable[Any]) -> Path:
    return text(path, "".join(json.dumps(record) + "\n" for record in records))


def whole(path: Path, content: Any) -> Path:
    return text(path, json.dumps(content))


def text(path: Path, content: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content.encode()) if path.suffix == ".gz" else content.encode())
    return path


def multihop(name: str, *, shared: str = "") -> dict[str, Any]:
    """A question about town `name` and the river it is on. shared: another supporting title."""
    context = [
        [f"Town {name}", [f"Town {name} is a town.", f" It lies on the river Run{name}."]],
        [f"Run{name}", [f"Run{name} is 40{len(name)} km long."]],
        *([f"Other {name}{number}", ["Nothing of note."]] for number in range(3)),
    ]
    facts: list[list[Any]] = [[f"Town {name}", 1], [f"Run{name}", 0]]
    if shared:
        context.append([shared, ["A paragraph of several questions."]])
        facts.append([shared, 0])
    return {
        "id": f"q{name}", "question": f"How long is the river of Town {name}?", "answer": f"40{len(name)} km",
        "type": "bridge_comparison", "level": "hard", "supporting_facts": facts,
        "evidences": [[f"Town {name}", "river", f"Run{name}"]], "context": context,
    }  # fmt: skip


def multihop_folder(root: Path, folder: str) -> None:
    for part, (one, other) in {"train": ("A", "B"), "dev": ("C", "D"), "test": ("E", "F")}.items():
        lines(root / folder / f"{part}.jsonl.gz", [multihop(one), multihop(other, shared="Old Bridge")])


def bfcl(root: Path) -> None:
    folder = root / "bfcl_memory"
    questions, answers = [], []
    for number, scenario in enumerate(("customer", "notetaker", "finance", "healthcare", "student")):
        said = (
            f"Hello. My dog is called Rex{number}, and he is old.",
            "Monday: Call the plumber. Daycare is due Friday.",
        )
        talk = [[{"role": "user", "content": text}] for text in said]
        other = [[{"role": "user", "content": "We spoke of nothing in particular today."}]]
        talks = {f"p{number}": talk, f"p{number}-2": other}
        lines(folder / f"memory_conversations_{scenario}.jsonl", [
            {"id": id, "question": told, "scenario": scenario, "topic": "x"} for id, told in talks.items()
        ])  # fmt: skip
        asked = (
            (f"What is my dog {number} called?", [f"Rex{number}"], f"My dog is called Rex{number}... he is old."),
            (f"When is daycare due, {number}?", ["Friday"], "Daycare payment is due Friday."),
        )
        for place, (question, gold, source) in enumerate(asked):
            id = f"m{number}-{place}"
            questions.append({"id": id, "question": [[{"role": "user", "content": question}]], "scenario": scenario})
            answers.append({"id": id, "ground_truth": gold, "source": source})
    lines(folder / "memory_questions.jsonl", questions)
    lines(folder / "memory_answers.jsonl", answers)


def prefeval(root: Path) -> None:
    lines(root / "prefeval" / "explicit_with_mcq.jsonl.gz", [
        {
            "topic": f"topic{number % 3}", "index": number, "preference": f"I never eat fruit number {number}.",
            "question": f"What should I eat on day {number}?", "explanation": "",
            "mcq": {"classification_task_options": [f"bread {number}", "fruit", "more fruit", "a fruit pie"]},
        }
        for number in range(30)
    ])  # fmt: skip


TIMEBENCH = (
    *("tempreason_l1", "tempreason_l2", "tempreason_l3", "timeqa_easy", "timeqa_hard"),
    *("menatqa_scope", "menatqa_order", "menatqa_counterfactual"),
)


def timebench(root: Path) -> None:
    folder = root / "timebench"
    for name in TIMEBENCH:
        records = []
        for number in range(20):
            who = f"{name.title().replace('_', '')} Person{number}"
            record: dict[str, Any] = {"question": f"Where did {who} work in 1990?", "answer": [f"Mill {number}"]}
            if name.startswith("tempreason"):
                record["context"] = "" if name.endswith("l1") else f"{who} was a worker."
            if name in ("tempreason_l2", "tempreason_l3"):
                before = f"{who} worked at Shop {number} from 1980 to 1985."
                record["fact_context"] = f"{before}\n{who} worked at Mill {number} from 1985."
            if name.startswith("timeqa"):
                record["context"] = f"{who} was born. He worked at Mill {number}."
                record["idx"] = f"/wiki/{who.replace(' ', '_')}#1"
            if name.startswith("menatqa"):
                record |= {"context": [f"{who} was born.", "Then nothing."], "answer": "unanswerable", "meta": {}}
            records.append(record)
        lines(folder / f"{name}.jsonl.gz", records)
    for name in ("timedial_f2", "mctaco_f2", "durationqa_f2"):
        lines(folder / f"{name}.jsonl.gz", [
            {
                "qid": number, "context": f"A: How long did {name} {number} take?\nB: For {number} it took <MASK>.",
                **({} if name == "timedial_f2" else {"question": f"How long did {name} {number} take?"}),
                "options": ["a day", "a year", "a minute"], "labels": ["yes", "no" if number else "yes", "yes"],
            }
            for number in range(20)
        ])  # fmt: skip
    for name in ("tracie", "timexnli_cs1", "timexnli_cs2", "timexnli_cs3"):
        lines(folder / f"{name}.jsonl.gz", [
            {"Premise": f"{name} began in {2000 + n}.", "Hypothesis": f"{name} {n} is old.", "Label": "Entailment"}
            for n in range(20)
        ])  # fmt: skip


def time_ranges(root: Path) -> None:
    days = {f"What did Ann do on day {n}": f"2020-04-{n % 28 + 1:02}" for n in range(40)}
    asked = [(question, f"{day}T00:00:00", f"{day}T23:59:59") for question, day in days.items()]
    asked += [("Which", "unknown", "2020-01-01T00:00:00"), ("When", "2020-01-01T00:00:00", "2025-07-17T11:00:00")]
    asked += [("Leap", "2021-02-29T00:00:00", "2021-02-29T23:59:59")]
    whole(root / "time_dialog_ranges" / "question_time_ranges.json", {
        f"q{number}": {"question": question, "question_time_range": {"start": start, "end": end}}
        for number, (question, start, end) in enumerate(asked)
    })  # fmt: skip


def math500(root: Path) -> None:
    lines(root / "math500" / "test.jsonl", [
        {
            "problem": f"What is half of ${number}$?", "solution": f"It is \\boxed{{\\frac{{{number}}}{{2}}}}.",
            "answer": f"\\frac{{{number}}}{{2}}", "subject": "Algebra", "level": 1,
            "unique_id": f"test/{number}.json",
        }
        for number in range(1, 60, 2)
    ])  # fmt: skip


def banking77(root: Path) -> None:
    for part, count in (("train", 6), ("test", 3)):
        rows = [f'"{part} query {n} on topic {topic}",topic_{topic}' for topic in range(60) for n in range(count)]
        text(root / "banking77" / f"{part}.csv", "text,category\n" + "\n".join(rows) + "\n")


def longmemeval_file(root: Path) -> None:
    records = []
    for number in range(30):
        sessions = [
            [{"role": "user", "content": f"I bought lamp {number} for {number} pounds.", "has_answer": True}],
            [{"role": "user", "content": "Hello there."}, {"role": "assistant", "content": "Hello."}],
        ]
        records.append({
            "question_id": f"new{number}" + ("_abs" if number == 3 else ""), "question_type": "single-session-user",
            "question": f"What did lamp {number} cost?", "answer": f"{number} pounds",
            "question_date": "2023/05/30 (Tue) 23:40",
            "haystack_dates": ["2023/05/20 (Sat) 02:21", "2023/05/10 (Wed) 02:21"],
            "haystack_session_ids": [f"answer_{number}", "chat_1"], "haystack_sessions": sessions,
            "answer_session_ids": [f"answer_{number}"],
        })  # fmt: skip
    whole(root / "longmemeval" / "longmemeval_s_cleaned.json", records)


def longmemeval_v2(root: Path) -> None:
    folder = root / "longmemeval-v2"
    states = [{"url": "http://shop", "action": "click", "thought": "a sale", "accessibility_tree": "Lamps. Chairs."}]
    bought = {"domain": "web", "goal": "buy", "outcome": "success", "states": states}
    lines(folder / "trajectories.jsonl", [{"id": f"t{n}", **bought} for n in range(4)])
    lines(folder / "questions.jsonl", [
        {
            "id": f"q{n}", "domain": "web", "question": f"What is on page {n}?", "answer": f"lamps {n}",
            "question_type": "static", "eval_function": "norm_phrase_set_match",
            "image": "x.png" if n == 0 else None,
        }
        for n in range(30)
    ])  # fmt: skip
    whole(folder / "haystacks" / "lme_v2_small.json", {f"q{n}": [f"t{n % 4}", f"t{(n + 1) % 4}"] for n in range(30)})


def memory_agent_bench(root: Path) -> None:
    lines(root / "memoryagentbench" / "Conflict_Resolution.jsonl", [
        {
            "context": f"Here are facts:\n0. Lamp {n} is red.\n1. Lamp {n} is blue.",
            "questions": [f"Which colour has lamp {n}?", f"What is {n}?"],
            "answers": [["blue", "Blue"], ["a lamp"]],
            "metadata": {"source": "factconsolidation_sh_6k", "qa_pair_ids": [f"{n}_0", f"{n}_1"]},
        }
        for n in range(30)
    ])  # fmt: skip


def memory_arena(root: Path) -> None:
    lines(root / "memoryarena" / "data.jsonl", [
        {
            "id": n, "category": "baking", "backgrounds": [f"The shop {n} has flour."],
            "questions": [f"Buy flour {n}.", f"Buy sugar like {n}.", f"Plan trip {n}."],
            "answers": [
                {"target_asin": f"B0{n}", "attributes": ["fine"]}, f"sugar {n}", [{"days": 1, "to": f"Rome {n}"}],
            ],
        }
        for n in range(30)
    ])  # fmt: skip


def lifelong_agent_bench(root: Path) -> None:
    table = {"name": "shops", "row_list": [["a", 1]], "column_info_list": [{"name": "town", "type": "TEXT"}]}
    whole(root / "lifelongagentbench" / "db_bench.json", {
        str(n): {
            "instruction": f"List the towns of shop {n}.", "table_info": table, "skill_list": ["select"],
            "answer_info": {"md5": None, "direct": [["a"]], "sql": f"SELECT town FROM shops WHERE id = {n}"},
        }
        for n in range(40)
    })  # fmt: skip


def tau2(root: Path) -> None:
    folder = root / "tau2"
    calls = [{"name": "find_user", "arguments": {}}, {"name": "cancel_order", "arguments": {"id": "W1"}}]
    whole(folder / "tasks.json", [
        {
            "id": str(n), "description": {}, "initial_state": None,
            "user_scenario": {"persona": None, "instructions": {
                "domain": "retail", "reason_for_call": f"Cancel order W{n}.", "known_info": "I am Ann.",
            }},
            "evaluation_criteria": {"actions": [] if n == 1 else calls, "nl_assertions": []},
        }
        for n in range(40)
    ])  # fmt: skip
    text(folder / "policy.md", "# Policy\n\nCancel only orders that are pending.\n")
    whole(folder / "split_tasks.json", {"train": [str(n) for n in range(30)], "test": [str(n) for n in range(30, 40)]})

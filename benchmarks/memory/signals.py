"""How well each signal is recognised, and what it says of the answer: precision, recall and the fitted weights.

    python -m benchmarks.memory.signals [--fit] [--json benchmarks/memory/signals.json]
    python -m benchmarks.memory.signals --messages FILE

The labelled turns are in `tests/memory/signals`, made by somebody who knew no rule. Rules and weights come from `turns_dev.json`
alone; `turns_test.json` is only counted. With --fit the weights of `signals.toml` are written anew from the dev half, whose
messages are read for it by weights that were fitted without their session (`benchmarks.memory.reply_weights`).

Recognised: of the tools and messages that rules call by a name, how many the labels call so too (precision), and the other way
round (recall); for messages also by language. A signal of a turn is what is left of its signals after a later one of the same
family took an earlier one's place.

What a signal says: of the turns that have it, how many answers were good, bad, or of no outcome, which counts as half good. Its
weight is twice the difference from what is usual, with two imagined answers that are as usual; it is 0 if it is below 0.05, or if
the difference points away from the value. For checks and tools usual is what is so over all turns with one, as to pass is
no news where nearly all pass; for what the user does it is one half. A signal seen fewer than ten times keeps the weight that was
given to it by hand.

With --messages only the messages of a file are counted, which has a list of rows with `language`, `before`, `message` and `label`
(`correction`, `thanks`, `repetition` or `none`), as `messages_dev.json`.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.memory.engine import machine
from benchmarks.memory.reply_weights import key_of, read_turns_apart
from benchmarks.record import arguments, save
from keepworth.memory import signals

HERE = Path(__file__).parents[2]
TURNS, TABLE = HERE / "tests" / "memory" / "signals", HERE / "src" / "keepworth" / "memory" / "signals.toml"
ENDS = {"interrupt": "interrupt", "regenerate": "regenerated"}
MESSAGES = ("correction", "repetition", "thanks", "new-subject")
LEAST, FEW = 0.05, 10
"""The weight below which a signal says nothing, and the number of turns below which its weight is not fitted."""
NAMES = {"check-passed-after-failure": "check-mended"}

Turn = dict[str, Any]


def load_turns(half: str) -> list[Turn]:
    """Load one half of the labelled turns, "dev" or "test"."""
    turns: list[Turn] = json.loads((TURNS / f"turns_{half}.json").read_text("utf-8"))
    return turns


def read_tools(turn: Turn) -> list[str]:
    """Return the signal of each tool of a turn, "" for none, as an episode would take them."""
    names: list[str] = []
    for tool in turn["tools"]:
        command = tool["command"] if is_shell(tool["name"]) else ""
        name = signals.read_tool(command, failed=not tool["ok"], output=tool["output"])
        names.append("check-mended" if name == "check-passed" and "check-failed" in names else name)
    return names


def is_shell(name: str) -> bool:
    """Return whether a tool of this name runs command lines."""
    return bool(re.search(r"bash|shell|terminal|exec|command|run", name, re.IGNORECASE))


def read_message(turn: Turn) -> str:
    """Return the signal of a turn's next message, "" for none."""
    return signals.read_reply(turn["next"], turn["before"]) if turn["next"] else ""


def read_turn(turn: Turn, message: str) -> list[str]:
    """Return the signals of a turn that count: of each family the last. message: what its next message is read as."""
    seen = [*read_tools(turn), ENDS.get(turn["end"], ""), message]
    last = {signals.find_signal(name).family: name for name in seen if name}
    return list(last.values()) or ["silent"]


def compare(pairs: Iterable[tuple[str, str]]) -> dict[str, dict[str, Any]]:
    """Count, for each name, how often the rules and the labels call something so. pairs: (by the rules, by the labels)."""
    table: dict[str, Counter[str]] = defaultdict(Counter)
    for rule, label in pairs:
        if rule:
            table[rule]["called"] += 1
        if label:
            table[label]["labelled"] += 1
        if rule and rule == label:
            table[rule]["right"] += 1
    return {
        name: {
            **{key: counts[key] for key in ("called", "labelled", "right")},
            "precision": round(counts["right"] / counts["called"], 3) if counts["called"] else None,
            "recall": round(counts["right"] / counts["labelled"], 3) if counts["labelled"] else None,
        }
        for name, counts in sorted(table.items())
    }


def labels_of_tools(turn: Turn) -> list[str]:
    names = ["" if label == "none" else label.replace("_", "-") for label in turn["labels"]["tools"]]
    return [NAMES.get(name, name) for name in names]


def label_of_message(turn: Turn) -> str:
    name = (turn["labels"]["message"] or "").replace("_", "-")
    return name if name in MESSAGES else ""


def read_apart(turn: Turn, apart: dict[str, str]) -> str:
    """Return the signal of a turn's next message by weights that were fitted without its session.

    Args:
        turn: A turn of the dev half.
        apart: What `read_turns_apart` returns.
    """
    if not turn["next"]:
        return ""
    name = apart[key_of(turn["next"], turn["before"])]
    rule = signals.read_rules(turn["next"], turn["before"])
    return name or (rule if rule == "new-subject" else "")


def outcomes(turns: Sequence[Turn], read: Callable[[Turn], str] = read_message) -> dict[str, dict[str, Any]]:
    """Return what each signal says of the answers: counts of outcomes, and the value and weight that follow.

    Args:
        turns: The turns.
        read: What reads the next message of a turn.
    """
    table: dict[str, Counter[str]] = defaultdict(Counter)
    families: dict[str, Counter[str]] = defaultdict(Counter)
    for turn in turns:
        for name in read_turn(turn, read(turn)):
            table[name][turn["labels"]["outcome"]] += 1
            families[signals.find_signal(name).family][turn["labels"]["outcome"]] += 1
    usual = {family: good_share(families[family]) for family in ("check", "tool")}
    return {
        name: weigh(counts, signals.find_signal(name), usual.get(signals.find_signal(name).family, 0.5))
        for name, counts in sorted(table.items())
    }


def good_share(counts: Counter[str]) -> float:
    """Return the share of good answers, where one of no outcome is half of one."""
    return (counts["good"] + 0.5 * counts["none"]) / max(1, counts.total())


def weigh(counts: Counter[str], signal: signals.Signal, usual: float) -> dict[str, Any]:
    """Return a signal's weight from the outcomes of the answers where it was seen. usual: the usual share of good answers."""
    n = counts.total()
    difference = (good_share(counts) - usual) * n / (n + 2)
    weight = round(2.0 * difference * (1.0 if signal.value > 0.5 else -1.0), 2)
    row = {**{key: counts[key] for key in ("good", "bad", "none")}, "n": n, "value": signal.value}
    return {**row, "weight": signal.weight if n < FEW else weight if weight >= LEAST else 0.0}


def measure(half: str) -> dict[str, Any]:
    turns = load_turns(half)
    tools = compare(pair for turn in turns for pair in zip(read_tools(turn), labels_of_tools(turn), strict=True))
    spoken = [(turn["language"], read_message(turn), label_of_message(turn)) for turn in turns if turn["next"]]
    return {
        "turns": len(turns),
        "tools": tools,
        "messages": compare((rule, label) for _, rule, label in spoken),
        "by_language": {
            language: compare((rule, label) for of, rule, label in spoken if of == language)
            for language in sorted({of for of, _, _ in spoken})
        },
        "outcomes": outcomes(turns),
    }


def measure_messages(path: Path) -> dict[str, Any]:
    """Count how the messages of a file are read, in English and in other languages, and how many that say nothing are read as
    something."""
    rows = json.loads(path.read_text("utf-8"))
    called = [signals.read_reply(row["message"], row["before"]).replace("new-subject", "") for row in rows]
    result: dict[str, Any] = {}
    for title, chosen in (("English", lambda language: language == "en"), ("other", lambda language: language != "en")):
        pairs = [
            (rule, row["label"].replace("none", ""))
            for rule, row in zip(called, rows, strict=True)
            if chosen(row["language"])
        ]
        nothing = [rule for rule, label in pairs if not label]
        wrong = sum(map(bool, nothing))
        result[title] = {**compare(pairs), "none": {"labelled": len(nothing), "called": wrong}}
        print(f"{title}: {len(pairs)} messages, {wrong} of {len(nothing)} that say nothing are read as something")
        show_counts(compare(pairs))
    return result


def fit(measured: dict[str, dict[str, Any]]) -> None:
    """Write the weights of the signals into their table."""
    text = TABLE.read_text("utf-8")
    for name, row in measured.items():
        section = re.compile(rf"(\[signal\.{name}\]\n(?:\w+ = .*\n)*?weight = )[\d.]+")
        text = section.sub(rf"\g<1>{row['weight']}", text)
    TABLE.write_text(text, "utf-8")


def show_counts(table: dict[str, dict[str, Any]]) -> None:
    for name, row in table.items():
        print(
            f"  {name:20} called {row['called']:3} labelled {row['labelled']:3} right {row['right']:3}"
            f"  precision {row['precision']}  recall {row['recall']}"
        )


def show(half: str, record: dict[str, Any]) -> None:
    print(f"\n{half}: {record['turns']} turns")
    for part in ("tools", "messages"):
        show_counts(record[part])
    print("  outcome where seen:  good bad none   value weight")
    for name, row in record["outcomes"].items():
        print(f"  {name:20} {row['good']:4} {row['bad']:3} {row['none']:4}   {row['value']:.0f}  {row['weight']}")


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--fit", action="store_true", help="write weights from the dev half into signals.toml")
    parser.add_argument("--dev", action="store_true", help="count the dev half alone")
    parser.add_argument("--messages", type=Path, help="count the messages of this file alone")
    options = parser.parse_args()
    if options.messages:
        measure_messages(options.messages)
        return
    if options.fit:
        apart = read_turns_apart()
        fit(outcomes(load_turns("dev"), lambda turn: read_apart(turn, apart)))
        signals.load_signals.cache_clear()
    record = {half: measure(half) for half in (("dev",) if options.dev else ("dev", "test"))}
    for half, found in record.items():
        show(half, found)
    save(options.json, {"command": "python -m benchmarks.memory.signals", "machine": machine(), **record})


if __name__ == "__main__":
    main()

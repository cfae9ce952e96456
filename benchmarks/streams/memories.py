"""The one table of memories, and the evidence of each policy in it, from comparisons that `keepworth eval stream` left.

    keepworth eval stream --streams ... --arms ... --seeds 30 --split held-out --tuned benchmarks/streams/tuned.json --out FOLDER
    python -m benchmarks.streams.memories FOLDER ... --json benchmarks/streams/memories.json
    python -m benchmarks.streams.memories FOLDER ... --json benchmarks/streams/more.json --table-only

A folder may hold other streams or other arms of the same streams; of a row that two have the later counts, and of seeds those
that all have. With `--onto` the arms of these folders take their place among those that the file holds already, and
`--evidence METHOD ...` writes the evidence of these methods alone.

The score of an arm and a seed is its success over the tasks of a stream, and its mean over streams. Differences are paired by
seed, with 95 % intervals. *Plain similarity* is on each stream the best of `exprag` with its tuned and with its published
settings, and of four similar successes (`dead-ends-without-cap`, added after rows had been seen: `key-door` was tuned for two).
A *control* is the method without its idea: a part left out, values that are learned and not used (`+masked`, `+on+masked`),
rewards of other tasks (`+shuffled`), or records drawn by chance. A method that has settings under which its mechanism decides
something (`+on`) is judged by those, any other by the better of its tuned and its published settings.

A claim is judged by the differences from plain similarity and from the control, over all streams and on each (the intervals of
single streams are widened for their number).

Plain similarity itself is held against the latest cases (`exprecent`), and those against no memory. What a writer
writes is held against cases as they happened.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.methods.rules import NOT_THE_PAPERS, of_streams
from benchmarks.methods.ruling import ALL
from benchmarks.methods.write import arm as estimated
from benchmarks.methods.write import begin, gap, measuring, write
from benchmarks.record import arguments, save
from benchmarks.speed.setting import machine
from benchmarks.tables import read
from keepworth.base.line_file import read_lines
from keepworth.base.statistics import family
from keepworth.evaluation.stream import StreamRow
from keepworth.registry import methods

PLAIN = ("exprag", "exprag+published", "dead-ends-without-cap")
RULES = ("nearest-mean", "kernel-mean", "linucb", "linear-thompson")
BY_SIMILARITY = ("exprag", "memento-np")
CONTROL = {
    "amem": "amem-without-links",
    "reme": "reme-without-deletion",
    "memq": "memq-without-true-parents",
    "memp": "memp-without-adjustment",
    "dead-ends": "dead-ends-without-cap",
    "ace": "ace-without-counters",
    "gitm": "gitm-without-references",
    "default": "default+shuffled",
    "mixture": "mixture+shuffled",
    **dict.fromkeys(("exprag", "exprecent", "memento-np"), "random"),
    **dict.fromkeys(("amemguard", "remem", "rememberer", "agent-workflow-memory", "dynamic-cheatsheet"), "exprag"),
}
"""Of a method without its idea; of any other it is ARM+masked, the same settings without the values, or else NAME+masked."""
WRITERS = {"notes": "amem-without-links", "distilled": "reme-without-deletion"}
"""Of a writer the policy that shows what it wrote by similarity alone. It is held against cases as they happened, `exprag`."""
PARTS = {"default": "Streams of cases, where the claim is about notes."}
"""Which part of a claim the table is about, where it is not a paper's."""
BESIDE = {
    "default": "On plain notes docs/learning.md has its numbers.",
    "dead-ends": "On 30 rule sets of `injection` 35 in 100 questions with the attacker's phrase end as undesired, without the "
    "cap 71 and with rewards of other tasks 50, at 13 points more success than without the cap "
    "(benchmarks/streams/results/dead_ends.json).",
    "romerl": "How many memories are unnecessary, which the paper is about, was not measured.",
    "amemguard": "In both of our attacks it raises the attacker's success. With 12 hostile records beside 36 right ones the "
    "attacker gets its action in 34.1 of 100 questions as tuned, where plain similarity has 8.3, and in 12.4 as published, which "
    "is not told apart: +4.1 (-0.1 to +8.3) (benchmarks/streams/results/minority.json).",
}
"""What was measured, or was not, beside the table."""


class Table:
    """What was measured, by arm and stream. seeds: those that every arm has on each of its streams."""

    def __init__(self, rows: Sequence[StreamRow]) -> None:
        self.rows = {(row.family, row.arm, row.seed): row for row in rows}
        self.streams = list(dict.fromkeys(row.family for row in rows))
        seeds: dict[tuple[str, str], set[int]] = {}
        for row in rows:
            seeds.setdefault((row.family, row.arm), set()).add(row.seed)
        self.seeds = sorted(set.intersection(*seeds.values()))
        self.arms = [arm for arm in dict.fromkeys(row.arm for row in rows) if self.on(arm)]

    def on(self, arm: str) -> list[str]:
        """The streams on which an arm has all seeds."""
        return [stream for stream in self.streams if all((stream, arm, seed) in self.rows for seed in self.seeds)]

    def scores(self, arm: str, stream: str, measure: str = "auc") -> list[float]:
        return [float(getattr(self.rows[stream, arm, seed], measure)) for seed in self.seeds]

    def mean(self, arm: str, streams: Sequence[str], measure: str = "auc") -> list[float]:
        """The mean over streams, by seed."""
        means: list[float] = np.mean([self.scores(arm, stream, measure) for stream in streams], axis=0).tolist()
        return means

    def over(self, arm: str) -> float:
        return float(np.mean(self.mean(arm, self.streams)))

    def plain(self, stream: str) -> str:
        """The settings of plain similarity that are better on a stream."""
        return max((arm for arm in PLAIN if arm in self.arms), key=lambda arm: np.mean(self.scores(arm, stream)))

    def rival(self, name: str, stream: str) -> str:
        """What a method is held against."""
        if name == "exprecent":
            return "none"
        return "exprecent" if name in BY_SIMILARITY else self.plain(stream)

    def everywhere(self, names: Sequence[str]) -> list[str]:
        """Arms of these methods that have all streams, without their controls."""
        arms = [arm for arm in self.arms if arm.partition("+")[0] in names and self.on(arm) == self.streams]
        return [arm for arm in arms if arm.partition("+")[2] in ("", "published", "on")]


def controls(name: str, arm: str) -> tuple[str, ...]:
    """What may stand for a method without its idea, the best first."""
    return (CONTROL[name],) if name in CONTROL else (f"{arm}+masked", f"{name}+masked")


def judged(table: Table, name: str) -> str:
    """The arm by which a method is judged."""
    return max(table.everywhere([name]), key=lambda arm: (arm.endswith("+on"), table.over(arm)))


def against(table: Table, arm: str, others: Sequence[str], streams: Sequence[str], name: str) -> dict[str, Any]:
    """The paired difference of an arm from another one on each stream, in the mean over streams."""
    mine = [table.scores(arm, stream) for stream in streams]
    theirs = [table.scores(other, stream) for other, stream in zip(others, streams, strict=True)]
    return gap(name, np.mean(mine, axis=0).tolist(), np.mean(theirs, axis=0).tolist())


def gaps_by_stream(
    table: Table, arm: str, known: str, rivals: Mapping[str, str], control: str = ""
) -> tuple[list[dict[str, Any]], dict[str, list[str]]]:
    """The differences of an arm on each stream, and their names by stream.

    Args:
        table: What was measured.
        arm: The arm that is compared.
        known: What it is held against, in words.
        rivals: The same by stream, as an arm.
        control: The method without its idea, if it has one.
    """
    others = {known: rivals, **({control: dict.fromkeys(rivals, control)} if control else {})}
    names = {stream: [f"{other} on {stream}" for other in others] for stream in rivals}
    gaps = [
        against(table, arm, [arms[stream]], [stream], f"{other} on {stream}")
        for stream in rivals
        for other, arms in others.items()
    ]
    return gaps, names


def rooms(table: Table) -> dict[str, tuple[float, float]]:
    """The best simple rule and the oracle, on each stream and over all."""
    simple = table.everywhere((*RULES, "exprag", "exprecent"))
    ends: dict[str, tuple[float, float]] = {}
    for place in (ALL, *table.streams):
        streams = table.streams if place == ALL else [place]
        means = {of: float(np.mean(table.mean(of, streams))) for of in (*simple, "oracle")}
        ends[place] = (round(max(means[of] for of in simple), 4), round(means["oracle"], 4))
    return ends


def on_linked(arm: str, control: str) -> list[dict[str, Any]]:
    """Return how far an arm is above plain similarity and its control on `linked`, beside the table; [] if it did not run."""
    rows = read("streams/results/linked")["arms"]
    scores = {row["arm"]: list(map(float, row["by rule set"]["linked"].split())) for row in rows}
    plain = max(scores.keys() & {*PLAIN}, key=lambda of: np.mean(scores[of]))
    return [gap(of, scores[arm], scores[of]) for of in (plain, control)] if {arm, control} <= scores.keys() else []


def evidence(table: Table, name: str, claim: str, paper: str) -> dict[str, Any]:
    """The fields of the evidence of one policy."""
    arm = judged(table, name)
    control = next(of for of in controls(name, arm) if table.on(of) == table.streams)
    rivals = [table.rival(name, stream) for stream in table.streams]
    known = "no memory" if name == "exprecent" else "the latest cases" if name in BY_SIMILARITY else "plain similarity"
    gaps = [against(table, arm, rivals, table.streams, f"{known} on all streams")]
    gaps.append(against(table, arm, [control] * len(rivals), table.streams, f"{control} on {len(rivals)} streams"))
    best = max(table.everywhere(RULES), key=table.over)
    if arm != best:
        gaps.append(against(table, arm, [best] * len(rivals), table.streams, f"{best} on all streams"))
    single = []
    for other in (dict(zip(table.streams, rivals, strict=True)), dict.fromkeys(table.streams, control)):
        named = [(to, np.subtract(table.scores(arm, to), table.scores(of, to)).tolist()) for to, of in other.items()]
        single.append({row.name for row in family(named) if row.low > 0.0})
    ahead = [stream for stream in table.streams if all(stream in of for of in single)]
    linked = on_linked(arm, control)
    singles, by_stream = gaps_by_stream(table, arm, known, dict(zip(table.streams, rivals, strict=True)), control)
    if linked:
        by_stream["linked"] = [f"{known} on linked", f"{control} on linked"]
        singles += [{**row, "against": name} for row, name in zip(linked, by_stream["linked"], strict=True)]
    words = [np.mean(table.mean(of, table.streams, "words")) for of in (arm, table.plain(table.streams[0]))]
    parts = [of for of in table.arms if of.startswith(f"{name}-without-") and of != control]
    sentence = (
        f"{100 * table.over(arm):.1f} successes in 100 tasks over {len(table.streams)} streams; "
        f"{worded(gaps[0])} against {known}, {worded(gaps[1])} against `{control}`"
    )
    sentence += f"; above both on {', '.join(ahead)}. " if ahead else "; above both on no stream. "
    if arm != best:
        sentence += f"Against the best simple rule, `{best}`: {worded(gaps[2])}. "
    sentence += f"The agent reads {words[0]:.0f} words a task ({words[1]:.0f} with plain similarity)."
    if linked:
        gaps_there = f"{worded(linked[0])} against plain similarity, {worded(linked[1])} against `{control}`"
        sentence += f" On `linked`: {gaps_there}."
    for part in parts:
        gone = {stream: against(table, arm, [part], [stream], "") for stream in table.on(part)}
        less = [f"{worded(row)} on {stream}" for stream, row in gone.items() if row["mean"]]
        sentence += f" Against `{part}`: {', '.join(less)}."
    return {
        "n": len(table.seeds) * len(table.streams),
        "seeds": len(table.seeds),
        "unit": "rule set: 100 tasks of a stream, 50 where tasks have several steps",
        "arms": [
            estimated(f"{of} on {stream}", table.scores(of, stream))
            for stream in table.streams
            for of in dict.fromkeys(("none", "random", *PLAIN, *table.everywhere([name]), control, "oracle"))
            if stream in table.on(of)
        ],
        "comparisons": gaps + singles,
        "rule": of_streams(
            [row["against"] for row in gaps[:2]],
            by_stream,
            rooms(table),
            PARTS.get(name, NOT_THE_PAPERS if claim and paper else ""),
        ),
        "controls": list(dict.fromkeys(["none", "random", "oracle", control])),
        "sentence": " ".join(
            filter(None, [sentence, "The paper's worlds and models were not run." if paper else "", BESIDE.get(name)])
        ),
    }


def writer_evidence(table: Table, arm: str, raw: str = "exprag") -> dict[str, Any]:
    """The fields of the evidence of one writer."""
    streams, count = table.streams, len(table.streams)
    others = (raw, "random", "none")
    gaps = [against(table, arm, [other] * count, streams, f"{other} on {count} streams") for other in others]
    named = [(of, np.subtract(table.scores(arm, of), table.scores(raw, of)).tolist()) for of in streams]
    singles, by_stream = gaps_by_stream(table, arm, raw, dict.fromkeys(streams, raw))
    ahead = [row.name for row in family(named) if row.low > 0.0]
    words = [np.mean(table.mean(of, streams, "words")) for of in (arm, raw)]
    return {
        "n": len(table.seeds) * len(streams),
        "seeds": len(table.seeds),
        "unit": "rule set: 100 tasks of a stream, 50 where tasks have several steps",
        "arms": [estimated(f"{of} on {stream}", table.scores(of, stream)) for stream in streams for of in (arm, raw)],
        "comparisons": gaps + singles,
        "rule": of_streams([gaps[0]["against"]], by_stream, rooms(table), ""),
        "controls": [f"{raw}: cases as they happened", "records drawn by chance", "no memory"],
        "sentence": (
            f"{worded(gaps[0])} against cases as they happened, both found by similarity under settings tuned for each"
            + (f", above them on {', '.join(ahead)}. " if ahead else ", and above them on no stream. ")
            + f"The agent reads {words[0]:.0f} words a task for {words[1]:.0f}. Rules wrote; the form with a model was not run."
        ),
    }


def worded(row: dict[str, Any], unit: str = " points") -> str:
    """A difference with its interval, in points of 100."""
    low, high = (100 * end for end in row["interval"])
    return f"{100 * row['mean']:+.1f}{unit} ({low:+.1f} to {high:+.1f})"


def circumstances(table: Table) -> dict[str, Any]:
    """What a reader needs to judge a record."""
    setting = machine(1)
    return {
        "revision": setting["revision"],
        "versions": setting["versions"],
        "machine": f"{setting['processor']}, {setting['cores']} cores",
        "seeds": len(table.seeds),
    }


def record(table: Table, commands: Sequence[str]) -> dict[str, Any]:
    """What the page is made of."""
    arms = []
    for arm in table.arms:
        streams = table.on(arm)
        row: dict[str, Any] = {
            "arm": arm,
            "learning": {stream: estimated("", table.scores(arm, stream)) for stream in streams},
            "frozen": {stream: estimated("", table.scores(arm, stream, "final")) for stream in streams},
            "words": round(float(np.mean(table.mean(arm, streams, "words"))), 1),
            "by rule set": {stream: " ".join(f"{of:.4g}" for of in table.scores(arm, stream)) for stream in streams},
        }
        if streams == table.streams:
            row["mean"] = estimated("", table.mean(arm, streams))
            row["mean frozen"] = estimated("", table.mean(arm, streams, "final"))
        for stream in streams:
            if stream.partition(":")[0] == "injection":
                row["attacker's aim on injection"] = estimated("", table.scores(arm, stream, "target"))
        arms.append(row)
    return {
        "commands": list(commands),
        **circumstances(table),
        "streams": {
            row.family: {"tasks": len(row.bits), "frozen": len(row.held_out_bits)}
            for row in table.rows.values()
            if row.seed == table.seeds[0]
        },
        "best simple rule": max(table.everywhere(RULES), key=table.over, default=""),
        "arms": arms,
    }


def onto(before: dict[str, Any], fresh: dict[str, Any]) -> dict[str, Any]:
    """A record with the arms of a fresh one in place of its own."""
    arms = {row["arm"]: row for row in (*before["arms"], *fresh["arms"])}
    revision = f"{before['revision']}; {', '.join(row['arm'] for row in fresh['arms'])}: {fresh['revision']}"
    commands = list(dict.fromkeys((*before["commands"], *fresh["commands"])))
    return {**before, "commands": commands, "revision": revision, "arms": list(arms.values())}


def compare(record: dict[str, Any]) -> None:
    """Write down how far each arm is from plain similarity and from the default, by rule set, where both have the scores."""
    scores = {
        row["arm"]: {stream: np.array(of.split(), float) for stream, of in row.get("by rule set", {}).items()}
        for row in record["arms"]
    }
    rivals = {"default": dict.fromkeys(record["streams"], "default")}
    if plain := [arm for arm in PLAIN if scores.get(arm, {}).keys() >= record["streams"].keys()]:
        best = {stream: max(plain, key=lambda arm: scores[arm][stream].mean()) for stream in record["streams"]}
        record["plain similarity"] = rivals["plain similarity"] = best
    for rival, others in rivals.items():
        for row in record["arms"]:
            mine = scores[row["arm"]]
            if all(stream in mine and stream in scores.get(of, ()) for stream, of in others.items()):
                gaps = [mine[stream] - scores[of][stream] for stream, of in others.items()]
                row[rival] = gap(rival, np.mean(gaps, axis=0).tolist(), [0.0])


def command(folder: Path) -> str:
    """What made a folder, of the plan that it holds."""
    plan = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
    seeds = json.loads((folder / "summary.json").read_text(encoding="utf-8"))["seeds"]
    return (
        f"keepworth eval stream --streams {','.join(plan['streams'])} --arms {','.join(plan['arms'])} --seeds {seeds} "
        f"--split {plan['split']} --length {plan['length']} --tuned benchmarks/streams/tuned.json --data DATA"
    )


def main() -> None:
    parser = measuring(arguments(__doc__, json=False))
    parser.add_argument("--json", type=Path, help="the file to write the table to")
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    parser.add_argument("--table-only", action="store_true", help="leave the evidence of the methods as it is")
    parser.add_argument("--onto", action="store_true", help="keep the other arms of the file")
    parser.add_argument("--evidence", nargs="+", default=(), metavar="METHOD", help="write the evidence of these alone")
    options = parser.parse_args()
    begin(options)
    table = Table([StreamRow(**row) for folder in options.folders for row in read_lines(folder / "rows.jsonl")])
    commands = [*map(command, options.folders), "python -m benchmarks.streams.memories FOLDER ..."]
    fresh = record(table, commands)
    made = onto(json.loads(options.json.read_text(encoding="utf-8")), fresh) if options.onto else fresh
    compare(made)
    save(options.json, made)
    if options.table_only:
        return
    declared = methods("policy")
    for name in options.evidence or dict.fromkeys(arm.partition("+")[0] for arm in table.arms):
        if name in declared:
            write(name, "; ".join(commands), **evidence(table, name, declared[name].claim, declared[name].paper))
    for name, arm in WRITERS.items():
        if arm in table.arms and not options.evidence:
            write(name, "; ".join(commands), **writer_evidence(table, arm))


if __name__ == "__main__":
    main()

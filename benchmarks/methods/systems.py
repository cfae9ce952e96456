"""Writes the evidence of systems of training, from what was measured of them: files that the git history holds.

    python -m benchmarks.methods.systems [NAME ...]

The programs that measured are gone, since their studies are finished, and some of the systems were decided against. So a record
names the revision in which its program and its numbers are, and its verdict is stale; what the rule says of the numbers stands
beside it. Gains are in times: +.25 is 1.25 times as fast.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.methods.rules import above, one, rule
from benchmarks.methods.write import arm, begin, gap, measuring, write
from benchmarks.record import arguments
from benchmarks.tables import ROOT
from keepworth.registry import methods

Record = Any
Fields = dict[str, Any]
TIMES = "times as fast as the arm that it is compared with, minus 1, by rounds"


@dataclass(frozen=True)
class Source:
    """The place of the numbers of a system.

    Attributes:
        revision: The revision that holds the file and the program that made it.
        file: The file, under `benchmarks/`.
        program: The program's module at that revision, under `benchmarks`.
        fields: Makes the fields of the evidence of what the file holds.
    """

    revision: str
    file: str
    program: str
    fields: Callable[[Record], Fields]


def values(name: str, numbers: Sequence[float]) -> Fields:
    """An arm whose numbers have no bounds."""
    return arm(name, numbers, within=None)


def ends(name: str, row: Mapping[str, float], n: int) -> Fields:
    """An arm or a comparison of a mean with its interval."""
    return {
        "name": name,
        "mean": round(row["mean"], 4),
        "interval": [round(row["low"], 4), round(row["high"], 4)],
        "n": n,
    }


def against(name: str, row: Mapping[str, float], less: float = 0.0) -> Fields:
    """A comparison of a mean with its interval, of which so much is taken off."""
    low, high = (round(row[end] - less, 4) for end in ("low", "high"))
    return {"against": name, "mean": round(row["mean"] - less, 4), "interval": [low, high]}


def faster(name: str, slow: Sequence[float], quick: Sequence[float]) -> Fields:
    """Return how many times as fast something is, minus 1, by rounds."""
    return gap(name, np.divide(slow, quick).tolist(), [1.0] * len(quick))


def learners(record: Record) -> Fields:
    walls = {row["learners"]: [update["wall"] for update in row["updates"]] for row in record["results"]}
    return {
        "n": 3, "seeds": 3, "unit": f"seconds of an update of 135M parameters; {TIMES}", "model": record["model"],
        "arms": [values(f"{many} learners", seconds) for many, seconds in walls.items()],
        "comparisons": [faster(f"one learner: {many} learners", walls[1], walls[many]) for many in (2, 4)],
        "controls": ["one learner", "weights of all learners, which are equal to the bit"],
        "rule": one("one learner: 2 learners", part="One machine of two cores."),
        "sentence": "Two learners make an update in half of the time of one; four on two cores are slower than two.",
    }  # fmt: skip


def latency(record: Record) -> Fields:
    seconds = record["seconds_per_step"]
    name = "synchronous: overlap, staleness 4"
    return {
        "n": 3, "seeds": 3, "unit": f"seconds of a step with environments that wait; {TIMES}", "model": record["model"],
        "arms": [values(arm_name, numbers) for arm_name, numbers in seconds.items()],
        "comparisons": [faster(f"synchronous: {other}", seconds["synchronous"], seconds[other]) for other in seconds
                        if other != "synchronous"],
        "controls": ["the same loop without sampling ahead"],
        "rule": one(name, part="A tiny model whose environments wait, on one machine."),
        "sentence": "With environments that wait, sampling ahead by at most four updates is 3.25 times as fast as a synchronous "
        "loop, of at most 5.9.",
    }  # fmt: skip


def kills(record: Record) -> Fields:
    lost = {part: record[part]["lost"] for part in ("worker", "learner", "engine", "raylet")}
    return {
        "n": 10, "seeds": 1, "unit": "groups that were lost in ten kills of a part", "model": record["model"],
        "arms": [{"name": f"kills of a {part}", "mean": float(count), "interval": None, "n": 10} for part, count in lost.items()],
        "controls": ["the same run without a kill, which ends with equal weights"],
        "rule": {"missing": "Nothing was compared with a synchronous system of the same size; what was counted are kills."},
        "sentence": "Of ten kills of a worker, a learner, an engine and a raylet none lost a group or trained one twice.",
    }  # fmt: skip


def waits(record: Record) -> Fields:
    arms, gaps, places = [], [], {}
    for kind, measured in record["measured"].items():
        seconds = {way: [row["seconds"] for row in rows] for way, rows in measured.items()}
        arms += [values(f"{kind}: {way}", numbers) for way, numbers in seconds.items()]
        name = f"{kind}: 2 actors of Ray over threads"
        gaps.append(faster(name, seconds["threads"], seconds["2 actors of Ray"]))
        places[kind] = above(name)
    return {
        "n": 6, "seeds": 6, "unit": f"seconds of a step; {TIMES}", "model": record["model"], "arms": arms, "comparisons": gaps,
        "controls": ["threads of the learner's process", "a batch at once"],
        "rule": rule(places, part="One machine of two cores."),
        "sentence": "Workers of their own are 1.3 times as fast as threads where environments compute in Python, and no faster "
        "where they wait.",
    }  # fmt: skip


def placed(record: Record) -> Fields:
    ways = [(mode, way, of) for mode, row in record["modes"].items() for way, of in row.items() if mode != "overlap"]
    return {
        "n": 8, "seeds": 8, "unit": "share of seeds that end with the weights of one process, to the bit",
        "model": record["model"],
        "arms": [{"name": f"{mode}: {way}", "mean": of["equal"]["weights"] / of["n"], "interval": None, "n": of["n"]}
                 for mode, way, of in ways],
        "controls": ["one process"],
        "rule": {"missing": "That weights are equal everywhere is shown, and speed on a cluster was not measured."},
        "sentence": "In one process, in three and on two raylets of Ray all eight seeds end with the same weights.",
    }  # fmt: skip


def halves(record: Record, way: str, sentence: str) -> Fields:
    whole = "one whole batch"
    gaps = [against(f"{whole}: {other}", row, 1.0) for other, row in record["speedup"].items()]
    return {
        "n": 3, "seeds": 3, "unit": f"seconds of an update; {TIMES}", "model": record["model"],
        "arms": [values(name, [row["seconds"] for row in rows]) for name, rows in record["measured"].items()],
        "comparisons": gaps, "controls": [whole], "rule": one(f"{whole}: {way}", part="Environments of text that wait."),
        "sentence": sentence,
    }  # fmt: skip


def parked(record: Record) -> Fields:
    arms = {name: row for name, row in record["arms"].items() if name in ("plain", "parked", "discarded")}
    return {
        "n": 5, "seeds": 5, "unit": "share of right answers at equal tokens", "model": "tiny",
        "arms": [{"name": name, "mean": row["mean"], "interval": None, "n": 5} for name, row in arms.items()],
        "comparisons": [against("plain: parked", arms["parked"]["minus_plain"])],
        "controls": ["plain: each batch waits for its longest answer"],
        "rule": rule({"accuracy": {"level": ["plain: parked"]}},
                     part="Accuracy alone has seeds; speed was 1.2 to 1.3 times in two rounds, 1.4 to 1.9 in one with 135M."),
        "sentence": "At equal tokens parked answers cost no accuracy (+.001 [-.002, .004]); a step takes 1.2 to 1.4 times less "
        "processor time with a tiny model in two rounds.",
    }  # fmt: skip


def memory(record: Record) -> Fields:
    rows = record["rows"].values() if isinstance(record["rows"], dict) else record["rows"]
    arms = [{"name": f"{row['way']}, {row['slots']} slots: {what}", "mean": round(row[key] / size, 1), "interval": None, "n": 1}
            for row in rows for what, key, size in (("MB of keys", "keys_and_values_bytes", 1e6),
                                                    ("tokens a second", "tokens_per_cpu_second", 1.0))]  # fmt: skip
    return {
        "n": 1, "seeds": 1, "unit": "memory of keys and values, and tokens of a second, for a group of 32 answers",
        "model": record["model"], "arms": arms, "controls": ["whole calls"],
        "rule": {"missing": "It is of one round, so that no interval is there."},
        "sentence": "Eight slots hold a quarter of the keys and values of 32, and draw 98 tokens a second for 79; whole calls, "
        "which share a beginning, hold less than either and draw 131.",
    }  # fmt: skip


def few_left(record: Record) -> Fields:
    kinds = record["groups_of_6"]
    return {
        "n": 6, "seeds": 6, "unit": "share of decoding that a drafter would save in training, by kinds of prompts",
        "model": "smollm2-135m-instruct",
        "arms": [ends(kind, row["saved"], record["tasks"][kind]) for kind, row in kinds.items()],
        "comparisons": [against(f"no drafter: {kind}", row["saved"]) for kind, row in kinds.items()],
        "controls": ["a drafter that costs nothing", "decoding without a drafter"],
        "rule": rule({kind: above(f"no drafter: {kind}") for kind in kinds},
                     part="An estimate, of how often few sequences are left and how fast one is drafted."),
        "sentence": "With one sequence left a drafter is 1.4 times as fast, but few are rarely left: it would save 3.2 % "
        "[1.4, 5.1] of decoding on one kind of prompts and at most .3 % on three.",
    }  # fmt: skip


def taught(record: Record) -> Fields:
    tokens = record["traffic"]["held_out"]["at the end"]["tokens_of_each_prompt"]
    fast = record["traffic"]["held_out"]["at the end"]["by_head"]
    drawn = {name: of["1"] for name, of in tokens.items()}
    gaps = [
        gap(f"{other}: learned from what is served", drawn["from nothing"], drawn[other])
        for other in ("static", "frozen")
    ]
    return {
        "n": 24, "seeds": 1, "unit": "tokens of a pass with one drafted token, after traffic changed; by prompts",
        "model": record["model"], "arms": [ends(name, of["1"]["times_as_fast"], 24) for name, of in fast.items()],
        "comparisons": gaps, "controls": ["a head that was trained before", "a head that is frozen when traffic changes"],
        "rule": {**one(*(row["against"] for row in gaps), part="One conversation at a time, with 135M parameters."),
                 "units": "prompts that were held out"},
        "sentence": "After traffic changed, a head that learns from what is served is 1.34 times as fast as no drafter, one that "
        "was trained before 1.23 and one that is frozen 1.10, for one sequence at a time; 1.18 after 24 requests.",
    }  # fmt: skip


def swarm(record: Record) -> Fields:
    arms = {row["arm"]: row for row in record["arms"]}
    return {
        "n": 9, "seeds": 9, "unit": "mean reward at equal processor time, by swarms of three nodes", "model": "tiny",
        "arms": [ends(name, row["equal_seconds"], 9) for name, row in arms.items()]
        + [{"name": "oracle", "mean": record["oracle"], "interval": None, "n": 9}],
        "comparisons": [against(f"8 + 0: {name}", row["equal_seconds_gain"]) for name, row in arms.items()
                        if row["equal_seconds_gain"]],
        "controls": ["8 + 0: as many answers, all of them its own", "4 + 0", "a node that lies"],
        "rule": one("8 + 0: 4 + 4", room=[("8 + 0", "oracle")]),
        "sentence": "At equal processor time four answers of its own and four of others are .061 [.024, .098] below eight of its "
        "own; at equal updates no difference is shown (+.013 [-.028, .055]).",
    }  # fmt: skip


def lengths(record: Record) -> Fields:
    steps = record["steps"]["mixed"]["8"]
    names = [name for name in record["spearman"] if name in steps and "planned" not in name]
    saved = {name: {"mean": steps[name]["closed"], **steps[name]} for name in names}
    gaps = [against(f"as they came: {name}", row) for name, row in saved.items()]
    best = "ridge on the hidden state"
    return {
        "n": 176, "seeds": 5, "unit": "rank correlation with the length; share of the steps that known lengths would save",
        "model": "smollm2-135m-instruct", "arms": [ends(name, record["spearman"][name]["mixed"], 176) for name in names],
        "comparisons": gaps, "controls": ["as they came", "lengths known"],
        "rule": one(f"as they came: {best}", room=[(0.0, round(1.0 - steps["lengths known"]["steps"], 4))]),
        "sentence": f"The best predictor ({best}) ranks lengths by .51 [.45, .55], of at most .53, and closes .02 [-.14, .20] of "
        "what known lengths would save, which is 8 % of the decoding steps.",
    }  # fmt: skip


def load(record: Record) -> Fields:
    arms = dict.fromkeys(row["arm"] for row in record["runs"])
    seconds = {name: [row["cpu_seconds"] for row in record["runs"] if row["arm"] == name] for name in arms}
    return {
        "n": len(record["runs"]), "seeds": 1, "unit": "processor seconds of 34 requests, over shapes of arrival",
        "model": record["model"], "arms": [values(name, numbers) for name, numbers in seconds.items()],
        "controls": ["whole answers, one at a time"],
        "rule": {"missing": "Five of nine observations were looked at, and none of them is one gain with an interval."},
        "sentence": "Over shapes of arrival 34 requests take "
        + ", ".join(f"{np.mean(numbers):.1f} processor seconds with {name}" for name, numbers in seconds.items()) + ".",
    }  # fmt: skip


EACH_TURN = "one whole batch, ready first"
HALF = "two half-batches, in turns"
SOURCES = {
    "hybridflow": Source("669273bd", "speed/learners.json", "speed.learners", learners),
    "areal": Source("a351f487", "asynchrony/latency.json", "asynchrony.latency", latency),
    "llamarl": Source("004a345d", "cluster/kills.json", "cluster.kills", kills),
    "rollart": Source("0dcbca74", "cluster/waits.json", "cluster.waits", waits),
    "srl": Source("0dcbca74", "cluster/placed.json", "cluster.placed", placed),
    "envpool": Source(
        "8d05afac", "cluster/halves.json", "cluster.waits",
        lambda record: halves(record, EACH_TURN, "Whichever environment is ready first goes on: 1.35 times as fast [1.06, 1.73] "
                              "as a batch that waits for all."),
    ),
    "rlinf-vla": Source(
        "8d05afac", "cluster/halves.json", "cluster.waits",
        lambda record: halves(record, HALF, "Two half-batches in turns are 1.63 times as fast [1.59, 1.68] as a whole one; "
                              "against ready first 1.21 [.92, 1.58]."),
    ),
    "april": Source("0ee891d0", "asynchrony/equal_tokens.json", "asynchrony.equal_tokens", parked),
    "infinite-sampling": Source("2e7ae1de", "asynchrony/memory.json", "asynchrony.memory", memory),
    "tlt": Source("7317b627", "asynchrony/few_left.json", "asynchrony.few_left", few_left),
    "aurora": Source("c98b329f", "asynchrony/drafter_taught.json", "asynchrony.drafter_taught", taught),
    "sapo": Source("a11844ee", "cluster/swarm.json", "cluster.swarm", swarm),
    "regression-lm": Source("ddf2100a", "asynchrony/predictors.json", "asynchrony.predictors", lengths),
    "serving-unveiled": Source("a82fc15d", "serving/load.json", "serving.load", load),
}  # fmt: skip
"""Of each system that was measured where its numbers are."""
UNREACHABLE = {
    "asyncflow": "Its table of experience and its deferred update are not built here: the journal alone shows no gain in speed.",
    "hydra": "There is no reward head on the shared base here, and the bytes of the parts were never measured.",
    "mobile-agents": "Its claim is about agents of Android; what is here is the way to divide the tests.",
    "mr-sp": "Dividing a sequence over accelerators needs several of them.",
    "open-rl-benchmark": "Its claim is a collection of runs, of which no gain is claimed.",
    "perl": "There is no reward model of this project's own whose memory could be compared.",
    "ui-tars-2": "Its claim is about agents of screens and a flywheel of data, neither of which is here.",
    "v-triune": "No mixed run was made, and no model here sees images.",
}
"""Of each other system why its claim cannot be tested here."""


def read_record(revision: str, file: str) -> Record:
    """Return what a file held at a revision."""
    shown = ["git", "-C", str(ROOT), "show", f"{revision}:benchmarks/{file}"]
    return json.loads(subprocess.run(shown, capture_output=True, text=True, check=True).stdout)


def measured_by(record: Record) -> tuple[str, str]:
    """The machine of a file, and the revision whose tree had changes, "" where it had none."""
    machine = record.get("machine") or record.get("policy", {}).get("machine") or record.get("machine_of_heads") or {}
    where = f"{machine.get('processor', 'unknown')}, {machine.get('cores', '?')} cores"
    revision = machine.get("revision", "")
    return where, revision if revision.endswith("-dirty") else ""


def main() -> None:
    parser = measuring(arguments(__doc__, json=False))
    parser.add_argument("names", nargs="*", help="all where none is named")
    options = parser.parse_args()
    begin(options)
    for name in options.names or methods("system"):
        kind = "system" if any(name in methods(of) for of in ("objective", "recipe")) else ""
        if name in UNREACHABLE:
            write(name, f"python -m benchmarks.methods.systems {name}", UNREACHABLE[name], kind,
                  rule={"unreachable": UNREACHABLE[name]})  # fmt: skip
            continue
        source = SOURCES[name]
        record = read_record(source.revision, source.file)
        machine, dirty = measured_by(record)
        fields = source.fields(record)
        sentence = fields.pop("sentence") + (f" It was measured at {dirty}, in a tree with changes." if dirty else "")
        fields["rule"] |= {"uncommitted": dirty} if dirty else {}
        about = {"revision": source.revision, "machine": machine}
        command = f"git checkout {source.revision}; python -m benchmarks.{source.program}"
        write(name, command, sentence, kind, **{**fields, **about})


if __name__ == "__main__":
    main()

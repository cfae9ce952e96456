"""Put the tables of this folder's JSON files into docs/appendix/cluster.md, so that no number is typed by hand.

python -m benchmarks.cluster.page
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from benchmarks.tables import filled, markdown, takes_nothing

HERE = Path(__file__).parent
PAGE = HERE.parent.parent / "docs" / "cluster.md"
Result = Any


PARTS = (
    ("worker", "a rollout worker"),
    ("learner", "a learner"),
    ("raylet", "a raylet"),
    ("engine", "an engine"),
    ("controller", "the controller"),
)


def kills(result: Result) -> str:
    rows = []
    for part, named in PARTS:
        found = result[part]
        if part == "controller":
            serial, ahead = found["serial"], found["overlap"]
            end = "equal, bit for bit" if serial["identical"] else "**not equal**"
            rows.append((f"{named}, serial", serial["kills"], "", "", end, "", len(found["left_over"])))
            lost = ahead["lost"] + ahead["missing_from_steps"]
            row = (f"{named}, overlap", ahead["kills"], lost, ahead["trained_twice"], "", "", len(found["left_over"]))
            rows.append(row)
            continue
        same = found.get("equal")
        end = "" if same is None else "equal, bit for bit" if all(same.values()) else "**not equal**"
        named_of = f"{found['deaths_that_name_part_and_host']} of {found['deaths_noted']}"
        row = (named, found["kills"], found["lost"], found["trained_twice"], end, named_of, len(found["left_over"]))
        rows.append(row)
    head = (
        "killed",
        "kills",
        "groups lost",
        "trained twice",
        "the run's end",
        "deaths that name part and host",
        "left over",
    )
    lag = ", ".join(f"{part} {result[part]['longest_lag']} of {result[part]['bound']}" for part in ("worker", "engine"))
    said = f"Model: {result['model']}. The oldest weights that anything was trained on, in updates, beside the bound: {lag}."
    return "\n\n".join((markdown(head, rows), said, _setting(result["machine"])))


def placed(result: Result) -> str:
    rows = []
    for mode, arms in result["modes"].items():
        for arm, found in arms.items():
            gap = found.get("minus_one_process")
            equal = [f"{count} of {found['n']}" for count in found["equal"].values()]
            rows.append((mode, arm, *equal, f"{found['reward']:.3f}", _gain(gap) if gap else ""))
    head = (
        "sampling",
        "where",
        "equal weights",
        "equal metrics",
        "equal episodes",
        "reward",
        "reward beside one process",
    )
    said = (
        f"Model: {result['model']}. {len(result['seeds'])} seeds; {result['tasks_per_step']} groups of {result['group_size']} "
        f"an update. Intervals are {result['interval']}."
    )
    return "\n\n".join((markdown(head, rows, left=2), said, _setting(result["machine"])))


def swarm(result: Result) -> str:
    rows = [
        (
            row["arm"],
            _mean(row["final"]),
            _gain(row["final_gain"]),
            _mean(row["equal_seconds"]),
            _gain(row["equal_seconds_gain"]),
            f"{row['sampled']:,.0f}",
            f"{row['foreign'] * result['members']:,.0f}",
            f"{row['seconds']:.1f}",
        )
        for row in result["arms"]
    ]
    head = (
        "local + foreign groups",
        "at equal updates",
        "against 8 + 0",
        "at equal processor time",
        "against 8 + 0",
        "rollouts sampled",
        "rollouts taken over",
        "processor seconds",
    )
    said = (
        f"Share of reward, of which {result['untrained']:.3f} without training, {result['chance']:.3f} by chance and "
        f"{result['oracle']:g} for who knows the rule. Rollouts and seconds are a node's, over {result['steps']} updates. "
        f"{len(result['seeds'])} swarms of {result['nodes']} nodes; intervals are over swarms (t), paired by seed."
    )
    return "\n\n".join((markdown(head, rows), said, _besides(result), _setting(result["machine"])))


def _besides(result: Result) -> str:
    lines = [f"{name}: {_gain(gap)}" for name, gap in result["beyond"].items()]
    (liar,) = (row for row in result["arms"] if row["arm"].endswith("a liar"))
    trained, refused = liar["trained"], liar["refused"]
    listed = ", ".join(f"{why} {count}" for why, count in sorted(refused.items(), key=lambda each: -each[1]))
    return (
        f"At equal updates, {'; '.join(lines)}. With the liar, {trained.get('nodes', 0):,} groups of the other node were "
        f"trained on and {trained.get('liar', 0):,} that the liar wrote; refused were {sum(refused.values()):,} ({listed})."
    )


def cost(result: Result) -> str:
    rows = [
        ("sampled", _seconds(result["seconds_sampled"])),
        ("replayed and scored", _seconds(result["seconds_replayed"])),
    ]
    said = (
        f"{result['model']}, recipe arithmetic: groups of {result['members']}, answers of up to {result['max_tokens']} tokens; "
        f"{len(result['rounds'])} rounds, t intervals over them. Learning costs the same for both."
    )
    return "\n\n".join((markdown(("a group that is", "processor seconds"), rows), said, _setting(result["machine"])))


def waits(result: Result) -> str:
    rows = [
        (
            kind,
            arm,
            _median(runs),
            _faster(result["speedup"][kind].get(arm)),
            _faster(result["beside_threads"][kind].get(arm)),
            f"{_middle(runs, 'cpu_seconds'):.2f} + {_middle(runs, 'cpu_seconds_of_pool'):.2f} s",
        )
        for kind, arms in result["measured"].items()
        for arm, runs in arms.items()
    ]
    head = ("", "who does it", "an update", "times as fast", "beside threads", "processor, here + there")
    said = (
        f"Tiny model, {result['episodes_per_step']} episodes an update, whose compute is "
        f"{result['compute_cpu_seconds_per_step']:.2f} processor seconds. {result['rounds']} rounds in changing order, "
        f"{result['steps_measured']} updates each; geometric means with 95 % intervals."
    )
    return "\n\n".join((markdown(head, rows, left=2), said, _setting(result["machine"])))


def halves(result: Result) -> str:
    rows = [
        (
            arm,
            _median(runs),
            _faster(result["speedup"].get(arm)),
            _faster(result["beside_ready_first"].get(arm)),
            f"{_middle(runs, 'cpu_seconds'):.1f} s",
        )
        for arm, runs in result["measured"].items()
    ]
    said = (
        f"{result['episodes_per_batch']} episodes of {result['turns']} turns a batch, {result['tokens_per_turn']} tokens a "
        f"turn; a batch's compute is {result['compute_cpu_seconds_per_batch']:.1f} processor seconds. {result['rounds']} rounds "
        f"in changing order, {result['updates_measured']} batches each; geometric means with 95 % intervals."
    )
    head = (result["model"], "a batch", "times as fast", "beside ready first", "processor")
    return "\n\n".join((markdown(head, rows), said, _setting(result["machine"])))


def _middle(runs: Result, what: str) -> float:
    return statistics.median(each[what] for each in runs)


def _median(runs: Result) -> str:
    return f"{_middle(runs, 'seconds'):.2f} s"


def _faster(found: Result | None) -> str:
    return "" if found is None else f"**{found['mean']:.2f}x** ({found['low']:.2f} to {found['high']:.2f})"


def _mean(found: Result) -> str:
    return f"{found['mean']:.3f} ({found['low']:.3f} to {found['high']:.3f})"


def _gain(found: Result | None) -> str:
    return "" if found is None else f"{found['mean']:+.3f} ({found['low']:+.3f} to {found['high']:+.3f})"


def _seconds(found: Result) -> str:
    return f"{found['mean']:.2f} ({found['low']:.2f} to {found['high']:.2f})"


def _setting(record: Result) -> str:
    return (
        f"{record['processor']}, {record['cores']} cores, {record['threads']} thread, load average "
        f"{record['load_average_at_start']:.1f} when it was written; torch {record['versions']['torch']}; revision "
        f"{record['revision']}, {record['measured_at'][:10]}."
    )


def main() -> None:
    takes_nothing(__doc__)
    tables = {"placed": placed, "kills": kills, "waits": waits, "halves": halves, "swarm": swarm, "swarm_cost": cost}
    for name, table in tables.items():
        filled(PAGE, name, table(json.loads((HERE / f"{name}.json").read_text())))


if __name__ == "__main__":
    main()

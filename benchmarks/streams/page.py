"""Keep what `keepworth eval stream` measured, and put it into docs/experience.md.

    python -m benchmarks.streams.page keep runs/one-step one-step      # benchmarks/streams/results/one-step.json
    python -m benchmarks.streams.page write                            # the page's tables, from those files

Every table of the page stands between two marks and is made here; a test makes them again and compares.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import re
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.streams.attack_claims import attacks, recovery, tampering
from benchmarks.tables import markdown, with_appendix
from keepworth.evaluation.stream import Results, load, table
from keepworth.evaluation.stream_claims import CONTROLS, METHOD, claims

ROOT = Path(__file__).parents[2]
RESULTS = Path(__file__).parent / "results"
PAGES = with_appendix(ROOT / "docs" / "experience.md")
HUNDRED = 100
Record = dict[str, Any]


def kept(folder: Path) -> Record:
    """What is kept of the matrix in `folder`: what was asked for, with which versions, the tables and the claims."""
    plan = json.loads((folder / "plan.json").read_text())
    rows = load(folder / "rows.jsonl")
    results = Results(rows)
    stated = claims(results)
    for name, measure in (("attacks", attacks), ("recovery", recovery), ("tampering", tampering)):
        if found := measure(results):
            stated[name] = found
    return {
        "plan": plan,
        "seeds": len(results.seeds),
        "episodes": {name: len(results.of(name, results.arms[0])[0].bits) for name in results.families},
        "versions": {
            "python": platform.python_version(),
            **{each: version(each) for each in ("keepworth", "numpy", "scipy")},
        },
        "table": {
            name: table(Results([each for each in rows if each.family == name]))[name] for name in results.families
        },
        "claims": stated,
    }


def rounded(value: Any, digits: int = 6) -> Any:
    if isinstance(value, dict):
        return {key: rounded(each, digits) for key, each in value.items()}
    if isinstance(value, list):
        return [rounded(each, digits) for each in value]
    return round(value, digits) if isinstance(value, float) and math.isfinite(value) else value


def of(name: str) -> Record:
    found: Record = json.loads((RESULTS / f"{name}.json").read_text())
    return found


def lines(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return markdown(head, list(rows), left=len(head))


def points(value: float, sign: str = "") -> str:
    return f"{HUNDRED * value:{sign}.1f}".replace("-0.0", "0.0")


def span(each: Record) -> str:
    return f"{points(each['low'], '+')} to {points(each['high'], '+')}"


def arms_of(found: Record) -> list[str]:
    """Arms of a file for a table: no memory first, right advice last, this project's parts left out."""
    asked = [arm for arm in found["plan"]["arms"] if not arm.startswith(f"{METHOD}-without-")]
    return sorted(asked, key=lambda arm: (arm == "oracle", arm not in CONTROLS, asked.index(arm)))


def success(*names: str) -> str:
    """Success in 100 while learning and, in brackets, frozen on held-out tasks: arms down, streams of all these files across.
    The best rival of a column is in bold."""
    files = [of(name) for name in names]
    columns = [(found, stream) for found in files for stream in found["table"]]
    every = dict.fromkeys(arm for found in files for arm in arms_of(found))
    arms = sorted(every, key=lambda arm: (arm == "oracle", arm not in CONTROLS))
    leading = {
        (each["stream"], each["measure"]): each["rival"] for found in files for each in found["claims"]["best_rival"]
    }
    rows = []
    for arm in arms:
        cells = []
        for found, stream in columns:
            values = found["table"][stream].get(arm)
            if values is None:
                cells.append("—")
                continue
            learning, frozen = (
                f"**{points(values[key])}**" if leading.get((stream, measure)) == arm else points(values[key])
                for measure, key in (("stream", "auc"), ("frozen", "held_out"))
            )
            cells.append(learning if math.isnan(values["held_out"]) else f"{learning} ({frozen})")
        rows.append([f"`{arm}`", *cells])
    return lines(["", *(stream for _, stream in columns)], rows)


def best(*names: str) -> str:
    """This project's method against the best rival of each stream."""
    rows = []
    for name in names:
        for each in of(name)["claims"]["best_rival"]:
            said = each["verdict"]
            if said == "too few seeds":
                said = f"too few seeds: {each['clusters']}, {each['seeds_needed']} needed"
            rows.append(
                [
                    f"{each['stream']}, {'while learning' if each['measure'] == 'stream' else 'frozen'}",
                    points(each["mean"]),
                    f"`{each['rival']}` {points(each['rival_mean'])}",
                    f"{points(each['difference'], '+')} ({span(each)})",
                    said,
                ]
            )
    head = ["", f"`{METHOD}`", "best rival", "difference", "verdict"]
    return lines(head, rows)


def overview(*names: str) -> str:
    """Success in 100 over all streams of a file and, in brackets, frozen: every arm that learns, the highest in bold."""
    found = {name: of(name) for name in names}
    every = dict.fromkeys(arm for each in found.values() for arm in arms_of(each))
    learning = [arm for arm in every if arm not in CONTROLS and "+" not in arm]
    means = {
        (arm, name, key): float(np.mean([values[arm][key] for values in found[name]["table"].values()]))
        for name in names
        for key in ("auc", "held_out")
        for arm in learning
        if all(arm in values for values in found[name]["table"].values())
    }

    def shown(arm: str, name: str, key: str) -> str:
        highest = max(value for (_, other, which), value in means.items() if (other, which) == (name, key))
        value = means[arm, name, key]
        return f"**{points(value)}**" if value == highest else points(value)

    def cell(arm: str, name: str) -> str:
        return f"{shown(arm, name, 'auc')} ({shown(arm, name, 'held_out')})" if (arm, name, "auc") in means else "—"

    return lines(["", *names], [[f"`{arm}`", *(cell(arm, name) for name in names)] for arm in learning])


def runs(*names: str) -> str:
    """What was run: how much of it, and how many comparisons were corrected together."""
    rows = []
    for name in names:
        found = of(name)
        against = found["claims"]["against_rivals"]
        lengths = sorted({str(many) for many in found["episodes"].values()}, key=int)
        rows.append(
            [
                f"`{name}.json`",
                ", ".join(found["table"]),
                str(found["seeds"]),
                ", ".join(found["plan"]["orders"]),
                " or ".join(lengths),
                f"{len(against)} ({against[0]['seeds_needed']})" if against else "—",
            ]
        )
    head = ["file", "streams", "rule sets, houses or draws", "orders", "tasks", "comparisons (seeds they need)"]
    return lines(head, rows)


def left(*names: str) -> str:
    """What is left of the gain over no memory when rewards are permuted."""
    cells: dict[str, list[str]] = {}
    for name in names:
        for each in of(name)["claims"]["gain_left_when_permuted"]:
            stream, _, _ = each["name"].partition(" on ")[2].partition(",")
            cells.setdefault(stream, []).append(f"{points(each['difference'], '+')} ({span(each)})")
    return lines(["stream", "while learning", "frozen"], [[stream, *both] for stream, both in cells.items()])


def parts(name: str) -> str:
    """What each part is worth on each stream: a star where its corrected interval leaves 0 out."""
    cells: dict[str, dict[str, str]] = {}
    for each in of(name)["claims"]["parts"]:
        arm, _, rest = each["name"].removeprefix(f"{METHOD} - ").partition(" on ")
        sure = each["low"] > 0.0 or each["high"] < 0.0
        shown = points(each["difference"], "+") + ("*" if sure else "")
        cells.setdefault(arm.removeprefix(f"{METHOD}-without-"), {})[rest.removesuffix(", stream")] = shown
    names = list(next(iter(cells.values())))
    return lines(["left out", *names], [[part, *(each[stream] for stream in names)] for part, each in cells.items()])


def attacked() -> str:
    rows = []
    for each in of("attacks")["claims"]["attacks"]:
        delay = each.get("detection_delay")
        detected = (
            f"{delay:.0f} tasks ({100 * each['detected']:.0f} %)"
            if delay is not None and not math.isnan(delay)
            else "—"
        )
        cells = [
            each["attack"],
            f"`{each['arm']}`",
            points(each["rate"], "+"),
            points(each["benign_success"]),
            detected,
        ]
        rows.append(cells)
    return lines(
        ["attack", "arm", "attacker's gain", "success without the attack", "put aside after (share of sources)"], rows
    )


def recovered() -> str:
    rows = []
    for each in of("attacks")["claims"]["recovery"]:
        back = each.get("recovered")
        cells = [points(each[key]) for key in ("attacked", "rolled_back", "never_attacked")]
        share = f"{100 * back['value']:.0f} %" if back else "—"
        if back and "low" in back:
            share += f" ({100 * back['low']:.0f} to {100 * back['high']:.0f})"
        rows.append([each["attack"], f"`{each['arm']}`", *cells, share])
    return lines(["attack", "arm", "attacked", "rolled back", "never attacked", "brought back of what it took"], rows)


def ordinary() -> str:
    """What attacks by ordinary means gain and cost with this project's method, in points, with 95 % intervals."""
    rows = []
    for each in of("ordinary")["claims"]["ordinary"]:
        if each["arm"] == METHOD:
            cells = [f"{points(each[key]['mean'], '+')} ({span(each[key])})" for key in ("gain", "cost")]
            bound = f"{points(each['allowed'])}: {'holds' if each['holds'] else 'does not hold'}"
            rows.append([each["attack"], *cells, bound])
    return lines(["attack", "attacker's gain", "cost", "gain allowed"], rows)


def tampered() -> str:
    by: dict[str, list[str]] = {}
    for each in of("tampering")["claims"]["tampering"]:
        by.setdefault(each["arm"], []).append(
            f"{points(each['lost'])} ({points(each['low'])} to {points(each['high'])})"
        )
    return lines(["points lost", "1 %", "5 %", "10 %"], [[f"`{arm}`", *cells] for arm, cells in by.items()])


def overhead() -> str:
    found = of("overhead")
    rows = []
    for title, name in (
        ("one user's 1,000 cases", "scope_of_1000_among_100k"),
        ("another's, kept at 1,000, after 3,000 choices", "scope_of_1000_after_3000_choices"),
        ("all 100,000", "unscoped_100k"),
    ):
        ms = {key.removesuffix("_ms"): each["p50"] for key, each in found[name].items() if key.endswith("_ms")}
        shown = ("recall", "reward", "recall_and_reward", "search", "recall_and_reward_less_search")
        rows.append([title, *(f"{ms[each]:.2f} ms" for each in shown)])
    return lines(["", "recall", "reward", "recall + reward", "the engine's own search", "difference"], rows)


PUBLISHED = ("exprag", "remem", "reme", "memrl", "memento-kernel", "memento-p", "rememberer", "amem")


def labelled_standing() -> str:
    said = []
    whole = json.loads((RESULTS / "labelled.json").read_text())["together"]
    for measure, when in (("live", "While learning"), ("frozen", "Frozen")):
        against = whole[measure]["against"]
        nearest = sorted(against, key=lambda arm: float(against[arm][1]))[:3]
        said.append(
            f"* {when}, `mixture` has a mean of {HUNDRED * whole[measure]['means']['mixture']:.1f} over all {whole['streams']} "
            "streams. Minus the nearest rivals: "
            + ", ".join(
                "`{}` ({:+.1f}, {:+.1f} to {:+.1f})".format(arm, *(HUNDRED * each for each in against[arm]))
                for arm in nearest
            )
            + "."
        )
    for measure, when in (("live", "While learning"), ("frozen", "Frozen")):
        each_family = []
        for family, one in json.loads((RESULTS / "labelled.json").read_text())["families"].items():
            against = {arm: gap for arm, gap in one[measure]["against"].items() if arm not in PUBLISHED}
            nearest = min(against, key=lambda arm: against[arm][1])
            mean, low, high = (HUNDRED * end for end in against[nearest])
            many = one[measure]["pairs"][nearest]
            each_family.append(f"{family} {mean:+.1f} ({low:+.1f} to {high:+.1f}), `{nearest}`, {many} seeds")
        said.append(
            f"* {when}, by family, the mean over its streams minus that of the nearest simple rule: {'; '.join(each_family)}."
        )
    return "\n".join(said)


STEPS = ("several-steps", "science")
MEASURED = ("one-step", "free-words", "banking77", *STEPS, "seen-before")
OVERVIEW = ("one-step", "free-words", "several-steps", "science", "seen-before", "banking77")
BLOCKS: dict[str, Callable[[], str]] = {
    "overview": lambda: overview(*OVERVIEW),
    "runs": lambda: runs(*MEASURED, "parts"),
    "best": lambda: best(*MEASURED),
    "parts": lambda: parts("parts"),
    "labelled-standing": labelled_standing,
    "left": lambda: left(*MEASURED),
    "attacks": attacked,
    "recovery": recovered,
    "ordinary": ordinary,
    "tampering": tampered,
    "overhead": overhead,
}


def rendered(text: str) -> str:
    """`text` with everything between `<!-- NAME -->` and `<!-- /NAME -->` made anew."""
    for name in re.findall(r"<!-- /([\w-]+) -->", text):
        if name not in BLOCKS:
            raise SystemExit(f"{PAGES[0]}: there is nothing to make for the mark <!-- /{name} -->.")
        content = f"<!-- {name} -->\n{BLOCKS[name]()}\n<!-- /{name} -->"
        text, made = re.subn(rf"<!-- {name} -->.*?<!-- /{name} -->", lambda _, c=content: c, text, flags=re.DOTALL)
        if made != 1:
            raise SystemExit(f"{PAGES[0]}: the marks <!-- {name} --> and <!-- /{name} --> must stand there once.")
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_subparsers(dest="what", required=True)
    keep = what.add_parser("keep")
    keep.add_argument("folder", type=Path)
    keep.add_argument("name")
    what.add_parser("write")
    asked = parser.parse_args()
    if asked.what == "keep":
        (RESULTS / f"{asked.name}.json").write_text(json.dumps(rounded(kept(asked.folder)), indent=1) + "\n")
    else:
        for page in PAGES:
            page.write_text(rendered(page.read_text()))


if __name__ == "__main__":
    main()

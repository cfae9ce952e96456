"""The tables of the JSON files beside this one in docs/appendix/memory_benchmarks.md and docs/learning.md."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.readme.page import plain
from benchmarks.tables import DOCS, markdown, read, spread

Result = Any


def engine(result: Result) -> str:
    """What `cold` has a table of is left to that."""
    elsewhere = {row["name"] for record in read("memory/cold") for row in record["figures"]}
    rows = [
        (
            row["name"] if row["unit"] in row["name"] else f"{row['name']}, {row['unit']}",
            _number(row["p50"]),
            _number(row["p95"]),
            f"{row['p50'] / row['limit']:.2f}x" if row["limit"] and row["unit"] != "items/s" else "",
            row["target"],
            row["note"],
        )
        for row in result["figures"]
        if row["name"] not in elsewhere
    ]
    head = ("", "p50", "p95", "p50 / limit", "target", "how")
    return markdown(head, rows) + f"\n\n{result['size']:,} items, seed {result['seed']}. " + _setting(result["machine"])


def growth(result: Result) -> str:
    """One column for each size, and one for targets where there are any."""
    sizes = [{row["name"]: row for row in record["figures"]} for record in result]
    first = {row["name"]: row for of in sizes[::-1] for row in of.values()}
    rows = [
        [f"{name}, {row['unit']}", *(_number(of[name]["p50"]) if name in of else "" for of in sizes), row["target"]]
        for name, row in first.items()
    ]
    head = ["median", *(f"{record['size']:,}" for record in result), "target"]
    if not any(row[-1] for row in rows):
        head, rows = head[:-1], [row[:-1] for row in rows]
    return markdown(head, rows) + "\n\n" + _settings(result)


def people(result: Result) -> str:
    """One row for each number of people."""
    rows = [
        (
            f"{record['size']:,}",
            f"{1000 if record['size'] <= 1000 else 100:,}",
            *(_number(figure["p50"]) for figure in record["figures"]),
        )
        for record in result
    ]
    head = ("people", "notes of each", "first search, ms", "from the third on, ms", "words held, MB")
    return markdown(head, rows) + "\n\n" + _settings(result)


def crash(result: Result) -> str:
    return (
        f"{result['rounds']} rounds, {result['kills']:,} processes killed, {result['acknowledged']:,} acknowledged items, "
        f"**{result['lost']} lost**; every check sound ({result['checks_sound']}), the journal replayed to the same view "
        f"{result['replays']} times; {result['files']} files, seeds {result['seeds'][0]} to {result['seeds'][-1]}. "
        + _setting(result["machine"])
    )


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _setting(machine: dict[str, Any]) -> str:
    return (
        f"{machine['processor']}, {machine['cores']} cores, load average {machine['load_average_at_start']:.1f}, "
        f"{machine['measured_at'][:10]}."
    )


def _settings(result: Result) -> str:
    """The settings of all sizes: a line for each machine and day, with the greatest load, which names its sizes where there are
    several lines."""
    settings: dict[tuple[str, int, str], list[Any]] = {}
    for record in result:
        machine = record["machine"]
        settings.setdefault((machine["processor"], machine["cores"], machine["measured_at"][:10]), []).append(record)
    lines = []
    for records in settings.values():
        busiest = max(
            (record["machine"] for record in records), key=lambda machine: float(machine["load_average_at_start"])
        )
        sizes = ", ".join(f"{record['size']:,}" for record in records)
        lines.append((f"{sizes}: " if len(settings) > 1 else "") + _setting(busiest))
    return "\n".join(f"* {line}" for line in lines) if len(lines) > 1 else lines[0]


LEFT_OUT = ("ranks, 60", "ranks, 10", "min-max, 0.3 words", "meaning")
"""Ways of finding that are nowhere the best; the file has them."""


def finding(result: Result) -> str:
    """What is found, beside everything else, and the paired gain over the best of that in the mean."""
    pools = result["pools"]
    names = [name for name in next(iter(pools.values()))["recall"] if name not in LEFT_OUT]
    means = {name: sum(pool["recall"][name] for pool in pools.values()) / len(pools) for name in names}
    best = max((name for name in names[1:] if not name.startswith(names[0])), key=lambda name: means[name])
    rows = []
    for pool, by_system in pools.items():
        gain = by_system["gain"][best]
        recalls = (f"{by_system['recall'][name]:.3f}" for name in names)
        rows.append((f"{pool}: {by_system['questions']:,}", *recalls, spread(gain, "+.3f")))
    rows.append(("mean", *(f"{mean:.3f}" for mean in means.values()), ""))
    head = ("recall of the first ten; questions", *names, f"gain over {best}")
    return markdown(head, rows) + "\n\n" + _setting(result["machine"])


WAY_NAMES = {"words": "words", "spelling": "hashed words", "meaning": "MiniLM"}
"""How the tables call the ways of searching."""


def how_many(result: Result) -> str:
    """What is shown by `top_k="auto"`, for each way of searching and each set."""
    rows = []
    for way, name in WAY_NAMES.items():
        for title, row in result[way]["sets"].items():
            auto, five, over = row["auto"], row["first five"], row["auto beside the first five"]
            nothing, best = auto["nothing shown"], row["most silent"]["nothing shown"]
            rows.append(
                (
                    f"{name}, {title}: {row['questions']['answer']}",
                    f"{auto['notes']:.1f}",
                    _interval(over["precision, times"], ".2f"),
                    *(f"{row[arm]['precision, times'][0]:.2f}" for arm in ("at best", "oracle beside the first five")),
                    _interval(row["the same, over all kinds"]["precision, times"], ".2f"),
                    f"{five['recall']:.3f}",
                    _interval(over["recall, difference"], "+.3f"),
                    f"{auto['lost']:.1%}",
                    *(f"{nothing[kind]:.0%}" if kind in nothing else "" for kind in ("small talk", "foreign")),
                    "; ".join(
                        f"{kind} {nothing[kind]:.0%} (at best {best[kind]:.0%})"
                        for kind in nothing
                        if kind not in ("small talk", "foreign")
                    ),
                )
            )
    head = (
        "questions with an answer",
        "notes shown",
        "precision, times that of five",
        "at best",
        "an oracle's",
        "the same, with all questions",
        "recall of five",
        "difference",
        "lost",
        "nothing for small talk",
        "for foreign questions",
        "for others",
    )
    return markdown(head, rows) + "\n\n" + _setting(result["machine"])


def set_size(result: Result) -> str:
    """What 200 rewards make of the number of tokens."""
    rows = []
    for name, periods in result.items():
        for period, row in periods.items() if isinstance(periods, dict) and name != "machine" else ():
            tokens, success = row["tokens"], row["success"]
            way, _, questions = name.partition(", ")
            rows.append(
                (
                    f"{WAY_NAMES[way]}, {questions}, {period}",
                    *(f"{tokens[arm]:.0f}" for arm in ("10", "5", "auto")),
                    *(f"{success[arm]:.1f}" for arm in ("10", "5", "auto")),
                    *(_interval(row[f"beside {arm}"]["success, points"], "+.1f") for arm in ("10", "5")),
                )
            )
    head = (
        "",
        "tokens of ten notes",
        "of five",
        "of auto",
        "success with ten, %",
        "with five",
        "with auto",
        "auto less ten, points",
        "auto less five",
    )
    return markdown(head, rows) + f"\n\n{result['draws']} draws. " + _setting(result["machine"])


def _interval(values: list[float], form: str) -> str:
    middle, low, high = (format(value, form) for value in values)
    return f"{middle} [{low}, {high}]"


def draw_tokens(result: Result, path: Path) -> None:
    """Draw what is shown against what is there of it: for each set, from the first five to what the memory decides."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7.2, 3.4), layout="constrained")
    colors = {"longmemeval": "#3b6ea5", "locomo": "#b3562f", "prefeval": "#3f8f5f"}
    for title, row in result["meaning"]["sets"].items():
        kind = title.split()[0]
        if "(" in title and "(8 " not in title:  # the others of BANKING77 lie beside it
            continue
        ends = [(row[arm]["notes over all kinds"], row[arm]["recall"]) for arm in ("first five", "auto", "oracle")]
        color = colors.get(kind, "#8a8a8a")
        axes.plot(*zip(*ends[:2], strict=True), color=color, linewidth=1.2)
        axes.plot(*ends[0], "o", color=color, fillstyle="none")
        axes.plot(*ends[1], "o", color=color)
        axes.plot(*ends[2], "x", color=color)
        axes.annotate(title, ends[1], textcoords="offset points", xytext=(6, -10), fontsize=8, color=color)
    axes.set(xlim=(0, 5.4), ylim=(0, 1.02))
    axes.set_xlabel("notes shown for a question, over all questions", fontsize=9, color="#555555")
    axes.set_ylabel("recall", fontsize=9, color="#555555")
    plain(axes)
    figure.savefig(path, facecolor="white", dpi=110)
    pyplot.close(figure)


def default_constants(result: Result) -> str:
    """What changing each constant of the default policy does in the test worlds, and where it loses most."""
    rows = []
    for name, value in result["constants"].items():
        cells, losses = [], []
        for how in ("halved", "doubled", "off"):
            row = result["test"]["changes"].get(f"{name} {how}")
            if row is None:
                cells.append("")
            elif row["trials"] == "none changed":
                cells.append("same")
            else:
                cells.append(spread(row))
                losses.append((row["worst"]["mean"], f"{row['worst']['world']}, {how}: {spread(row['worst'])}"))
        shown = ", ".join(f"{number:g}" for number in (value if isinstance(value, list) else [value]))
        rows.append((f"`{name}`", shown, *cells, min(losses)[1] if losses else ""))
    head = ("constant", "value", "halved", "doubled", "off", "loses most in")
    return f"{markdown(head, rows)}\n\nRevision {result['machine']['revision']}. " + _setting(result["machine"])


TABLES: dict[str, Callable[[Result], str]] = {
    "engine": engine,
    "cold": growth,
    "taught": growth,
    "rewarded": growth,
    "large": growth,
    "people": people,
    "crash": crash,
    "finding": finding,
    "how_many": how_many,
    "set_size": set_size,
    "default_constants": default_constants,
}
"""What makes a table of each file."""


REWARDS = ("true", "flipped", "constant", "nothing", "permuted")


def learning(result: Result) -> str:
    """The tables of how fast the default policy learns."""
    parts = {"two notes": result["two notes"]["default"], "slates": result["slates"], "traps": result["traps"]}
    parts |= {name: result[name] for name in ("tastes", "judge", "team", "ledger") if name in result}
    rows = [(f"{name}: {what}", _learned(row)) for name, part in parts.items() for what, row in part.items()]
    gains: dict[tuple[str, str], dict[str, Any]] = {}
    for what, row in result["banking77"].items():
        world, match, rest = what.partition(" tasks, ")
        if not match:
            rows.append((what, _learned(row)))
        elif row["mean"] == row["mean"]:
            policy, _, rewards = rest.partition(", ")
            gains.setdefault((f"{world} tasks", policy), {})[rewards] = row
    lines = [
        (*key, *(f"{_learned(row)}; {row['worst prefix']:.2f}" if (row := of.get(name)) else "" for name in REWARDS))
        for key, of in gains.items()
    ]
    head = ("BANKING77", "policy", *(f"rewards {rewards}" for rewards in REWARDS))
    return (
        f"{markdown(('the default policy', 'value'), rows)}\n\n{markdown(head, lines, left=2)}\n\n"
        "Of BANKING77: points over plain search, and behind the semicolon the lowest mean from task 50 on. Means over draws, "
        f"with 95 % intervals. `{result['command']}`"
    )


def _learned(row: Any) -> str:
    if isinstance(row, list):
        return f"{row[0]} of {row[1]}"
    if "median" in row:
        return f"median {row['median']:g}, 90th percentile {row['90th percentile']:g}"
    return spread(row)


def tables() -> Iterator[tuple[Path, str, str]]:
    for name, render in TABLES.items():
        yield DOCS / "appendix" / "memory_benchmarks.md", name, render(read(f"memory/{name}"))
    draw_tokens(read("memory/how_many"), DOCS / "images" / "how_many.png")
    yield DOCS / "learning.md", "learning-table", learning(read("memory/learning"))

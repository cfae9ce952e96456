"""The tables of the benchmarks of agents in docs/server.md and docs/quickstarts.md, and a picture in the README."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.readme.page import plain
from benchmarks.tables import DOCS, ROOT, markdown, read, spread
from keepworth.base.statistics import estimate


def share(row: dict[str, Any]) -> str:
    return f"{100 * row['mean']:.0f} % ({100 * max(0.0, row['low']):.0f} to {100 * min(1.0, row['high']):.0f})"


def percent(row: dict[str, Any]) -> str:
    """The same for a table whose head has the sign."""
    return spread({end: 100 * min(1.0, max(0.0, row[end])) for end in ("mean", "low", "high")}, ".0f")


def measured(result: dict[str, Any]) -> str:
    """When the numbers were taken: the code may have changed since."""
    return f"Measured {result['machine']['measured_at'][:10]}."


def facts(result: dict[str, Any]) -> str:
    scores = (
        "stale answers",
        "current answers",
        "stale item among the first 8",
        "current item among the first 8",
        "kept items that hold a fact",
        "facts that did not change and gave way",
    )
    row = result["planted"]["held-out attributes, held-out wordings"]
    rows = [
        (arm, *(percent(row[arm][score]) for score in scores)) for arm in ("raw", "rules before", "rules") if arm in row
    ]
    head = ("kept, in %", *scores[:-1], "unchanged facts that were replaced")
    return f"{markdown(head, rows)}\n\n{measured(result)}"


def updates(result: dict[str, Any]) -> str:
    scores = (
        "stale evidence before current",
        "current evidence before stale",
        "current evidence among the first 8",
        "both among the first 8",
        "current evidence is kept",
        "stale evidence is kept",
    )
    rows = []
    for arm in ("raw", "rules before", "rules"):
        row = result["longmemeval"][arm]
        kept, words = row["items kept"]["mean"], row["words among the first 8"]["mean"]
        rows.append((arm, *(percent(row[score]) for score in scores), f"{kept:.1f}", f"{words:.0f}"))
    cases = result["longmemeval"]["raw"]["items kept"]["n"]
    head = ("kept, in %", *scores, "items kept, number", "words shown")
    return f"{markdown(head, rows)}\n\n{cases} questions. {measured(result)}"


def quickstarts(result: dict[str, Any]) -> str:
    rows = [
        (
            name,
            row["commands"],
            row["lines"],
            f"{row['installing']:.0f}",
            f"{row['seconds']:.0f}",
            "yes" if row["proven"] else "no",
        )
        for name, row in result["quickstarts"].items()
    ]
    head = ("quick start", "commands", "lines", "seconds until installed", "seconds until proven", "proven")
    machine = result["machine"]
    return (
        markdown(head, rows)
        + f"\n\nOnce each, {result['at'][:10]}, Python {machine['python']}, {machine['cores']} cores that other work shared "
        f"(load average {machine['load'][0]:g} at the end)."
    )


def kills(result: dict[str, Any]) -> str:
    done = result["acknowledged"]
    return (
        f"{result['kills']} kills, {result['callers']} callers: {done['items']:,} items, {done['turns']:,} turns, "
        f"{done['episodes']:,} episodes and {done['rewards']:,} rewards were acknowledged. {result['lost']} were lost, "
        f"{result['done_twice']} were done twice; the exact two-sided 95 % interval (Clopper and Pearson) of the share of kills "
        f"with a loss ends at {100 * result['kills_with_a_loss_at_most']:.1f} %. {measured(result)}"
    )


def scan(result: dict[str, Any]) -> str:
    rates = result["rates"]
    seen = "; ".join(
        f"`{kind}` in {row['flagged']} ({row['per_million']:,} of a million, {row['low']:,} to {row['high']:,})"
        for kind, row in rates.items()
        if "per_million" in row
    )
    none = ", ".join(f"`{kind}`" for kind, row in rates.items() if "sessions_at_most" in row and kind != "any secret")
    bound = next(row["sessions_at_most"] for row in rates.values() if "sessions_at_most" in row)
    return (
        f"Of {result['sentences']:,} different sentences of {result['sessions']:,} sessions of LongMemEval, in which nobody "
        f"tells a secret: {seen}; {none} in none: at most {100 * bound:.1f} % of sessions have one that would be flagged (95 %). "
        f"{result['microseconds_per_sentence']:.0f} microseconds a sentence. {measured(result)}"
    )


def fuzz(result: dict[str, Any]) -> str:
    runs = result["runs"]
    return (
        f"{result['cases']:,} cases over {runs[0]['operations']} operations in {len(runs)} runs: {result['failures']} failures. "
        f"Schemathesis {runs[0]['schemathesis']}. {measured(result)}"
    )


def gateway(result: dict[str, Any]) -> str:
    """Of each kind of population and number of clients: what a call costs with memory, beside a proxy without one."""
    rows = []
    for population, arms in result["results"].items():
        for clients, of in arms.items():
            if clients == "load_average":
                continue
            on, bare = of["memory on"], of["bare proxy"]
            cells = (on["per_second"], bare["per_second"], of["memory off"]["per_second"])
            times = (f"{on['p50_ms']:.1f}", f"{on['p95_ms']:.1f}", f"{bare['p50_ms']:.1f}", f"{on['cpu_ms']:.1f}")
            rows.append((population, clients.split()[0], *(f"{rate:,.0f}" for rate in cells), *times))
    speeds = ("calls a second", "bare proxy", "memory off")
    head = ("vectors, people", "clients", *speeds, "p50 ms", "p95 ms", "p50 of the proxy", "CPU ms a call")
    setting = result["machine"]
    return (
        f"{markdown(head, rows)}\n\n{result['items']:,} notes in one file; each call is a new conversation with new words, and "
        f"{result['statements']} is a statement, which is kept. Medians of {result['rounds']} rounds of {result['calls']} calls "
        f"on {setting['cores']} cores, which client, upstream and proxy share; {setting['processor']}, load "
        f"{setting['load_average_at_start']:.1f} at the start. {measured(result)}"
    )


def closed_loop(result: dict[str, Any]) -> str:
    names = {
        "none": "no memory",
        "off": "memory, no rewards",
        "on": "memory, rewards",
        "permuted": "rewards of other episodes",
        "bolder": "rewards, bolder policy",
        "shuffled": "bolder policy, rewards of other episodes",
        "oracle": "oracle",
    }
    scores = ("success", "advice", "advice, second half", "favourites")
    arms = result["arms"]
    rows = [(name, *(percent(arms[arm][score]) for score in scores)) for arm, name in names.items() if arm in arms]
    return f"{markdown(('in %', *scores), rows)}\n\n{measured(result)}"


SHOWN = {
    "on": ("memory and rewards", "#117733"),
    "off": ("memory, no rewards", "#4477aa"),
    "none": ("no memory", "#888888"),
}
"""The arms of the picture, from the top, and their colours."""
WINDOW = 40


def picture(result: dict[str, Any], path: Path, wide: bool) -> None:
    """Success over the tasks of the closed loop: the mean over seeds in a moving window, and two standard errors beside it."""
    import matplotlib

    matplotlib.use("Agg")
    import numpy as np
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8.3, 3.0) if wide else (3.9, 3.1), dpi=200, layout="constrained")
    for arm, (label, colour) in SHOWN.items():
        right = np.array([[float(digit) for digit in row["right"]] for row in result["rows"][arm]])
        window = np.ones(WINDOW) / WINDOW
        smooth = 100 * np.array([np.convolve(row, window, mode="valid") for row in right])
        mean, error = smooth.mean(axis=0), smooth.std(axis=0, ddof=1) / len(smooth) ** 0.5
        tasks = np.arange(WINDOW, WINDOW + len(mean))
        axes.plot(tasks, mean, color=colour, linewidth=2, label=label)
        axes.fill_between(
            tasks, mean - 2 * error, np.minimum(mean + 2 * error, 100), color=colour, alpha=0.15, linewidth=0
        )
    axes.axvline(result["episodes"] / 2, color="#bbbbbb", linewidth=1, linestyle=":")
    axes.annotate(
        "the user changes\nfavourites",
        (result["episodes"] / 2, 2),
        (4, 0),
        textcoords="offset points",
        fontsize=8,
        color="#555555",
    )
    axes.set(xlim=(0, result["episodes"]), ylim=(0, 109), yticks=range(0, 101, 25))
    axes.set_xlabel("tasks done", fontsize=9, color="#555555")
    axes.set_ylabel(f"right, of the last {WINDOW} (%)", fontsize=9, color="#555555")
    plain(axes)
    figure.legend(loc="outside upper left", ncols=3 if wide else 1, fontsize=9, frameon=False, labelcolor="linecolor")
    figure.savefig(path, facecolor="white")
    pyplot.close(figure)


def loop_in_short(result: dict[str, Any]) -> str:
    """The sentence of the README."""
    means = {arm: share(asdict(estimate([row["second half"] for row in rows]))) for arm, rows in result["rows"].items()}
    return (
        f"An agent on OpenAI's SDK, {result['episodes']} tasks, {result['seeds']} runs. Right in the second half: "
        f"{means['on']} with memory and rewards, {means['off']} with memory alone, {means['none']} without. Two standard errors "
        f"are shaded. The user and the model are scripts ([how](docs/appendix/server.md#a-closed-loop))."
    )


def tables() -> Iterator[tuple[Path, str, str]]:
    of_server = {
        "kills": kills,
        "scan": scan,
        "fuzz": fuzz,
        "facts": facts,
        "closed_loop": closed_loop,
    }
    for name, table in of_server.items():
        yield DOCS / "server.md", name.replace("_", "-"), table(read(f"agents/{name}"))
    yield DOCS / "server.md", "gateway", gateway(read("serving/gateway"))
    yield DOCS / "server.md", "facts-longmemeval", updates(read("agents/facts"))
    yield DOCS / "quickstarts.md", "quickstarts", quickstarts(read("agents/quickstarts"))
    loop = read("agents/closed_loop")
    yield ROOT / "README.md", "learning", loop_in_short(loop)
    picture(loop, DOCS / "images" / "learning.png", True)
    picture(loop, DOCS / "images" / "learning_narrow.png", False)

"""Put the tables of the JSON files beside this one into docs/systems.md, so that no number is typed by hand.

python -m benchmarks.evaluation.page
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.evaluation.pairs import FOUND
from benchmarks.evaluation.pairs import READ as READ_BY_MODEL
from benchmarks.pictures import one_a_line
from benchmarks.tables import filled, markdown, takes_nothing

HERE = Path(__file__).parent
PAGE = HERE.parent.parent / "docs" / "systems.md"
STATISTICS = HERE.parent.parent / "docs" / "statistics.md"
DEPTHS = {"turn@5": "evidence @5", "turn@10": "@10", "turn@50": "@50", "shown": "in 512 tokens"}
FUSED = {"locomo-fused": "turn@5", "longmemeval+500-fused": "session@5"}


def span(cell: Any) -> str:
    return "—" if cell is None else f"{cell['mean']:.3f} ({cell['low']:.3f} to {cell['high']:.3f})"


def size(value: float | None) -> str:
    return "—" if value is None else f"{value / 1e6:.1f}"


def found(name: str) -> str:
    """What evidence each system found, and what it took."""
    of = json.loads((HERE / f"{name}.json").read_text())
    rows = [
        (
            f"`{arm}`",
            *(span(values["evidence"].get(depth)) for depth in DEPTHS),
            f"{values['ask ms']:.1f}",
            f"{values['write ms an entry']:.2f}",
            size(values["bytes"]),
        )
        for arm, values in of["arms"].items()
        if arm != "none"
    ]
    head = ("system", *DEPTHS.values(), "ms a question", "ms an entry", "MB")
    over = of["evidence over keepworth"]
    paired = [
        (f"`{arm}`", *(difference(over[depth].get(arm)) for depth in DEPTHS))
        for arm in of["arms"]
        if any(arm in own for own in over.values())
    ]
    beside = markdown(("over `keepworth`", *DEPTHS.values()), paired)
    return markdown(head, rows) + "\n\n" + beside + "\n\n" + note(of)


def fused(name: str, depth: str) -> str:
    """What words, meaning and both of them find, for each type of question too."""
    of = json.loads((HERE / f"{name}.json").read_text())
    sizes = {kind: values["evidence"][depth]["n"] for kind, values in next(iter(of["arms"].values()))["types"].items()}
    rows = [
        (
            f"`{arm}`",
            span(values["evidence"][depth]),
            *(f"{values['types'][kind]['evidence'][depth]['mean']:.3f}" for kind in sizes),
        )
        for arm, values in of["arms"].items()
    ]
    head = ("system", f"evidence, {depth}", *(f"{kind} ({count})" for kind, count in sizes.items()))
    return markdown(head, rows) + "\n\n" + asked(of)


def read(name: str) -> str:
    """What the reader made of it, and what it took."""
    of = json.loads((HERE / f"{name}.json").read_text())
    full = HERE / f"{name.removesuffix('-read')}-full.json"
    arms = dict(of["arms"])
    gains = dict(of["gains"])
    if full.exists():
        apart = json.loads(full.read_text())
        arms["full"], gains["full"] = apart["arms"]["full"], apart["gains"]["full"]
    rows = []
    for arm, values in arms.items():
        fit = values["questions"] - values["does not fit"]
        if fit < 3:
            rows.append((f"`{arm}`", f"{fit} of {values['questions']} fit" if fit else "does not fit", *["—"] * 8))
            continue
        some = f" of {fit} that fit" if values["does not fit"] else ""
        gain = gains.get(arm)
        rows.append(
            (
                f"`{arm}`",
                span(values["scores"]["score"]) + some,
                difference(gain),
                difference(of["over keepworth"].get(arm)),
                "—" if not values["evidence"].get("shown") else f"{values['evidence']['shown']['mean']:.2f}",
                f"{values['shown tokens']:.0f}",
                f"{values['calls']:.1f}",
                f"{values['ask ms']:.1f}",
                f"{values['write ms an entry']:.2f}",
                size(values["bytes"]),
            )
        )
    head = (
        "system",
        "score",
        "over `none`",
        "over `keepworth`",
        "evidence shown",
        "tokens",
        "calls",
        "ms a question",
        "ms an entry",
        "MB",
    )
    return markdown(head, rows) + "\n\n" + note(of)


def difference(gain: Any) -> str:
    """Bold where it is surely not 0, all differences of its column counted."""
    if gain is None:
        return "—"
    said = f"{gain['mean']:+.3f} ({gain['low']:+.3f} to {gain['high']:+.3f})"
    return f"**{said}**" if gain["adjusted"] < 0.05 else said


def points(names: Sequence[str]) -> str:
    """Where points went, of 100."""
    stages = (
        "scored",
        "never written",
        "lost",
        "not retrieved",
        "not selected",
        "not shown",
        "not used",
        "no evidence marked",
    )
    rows = []
    for name in names:
        arms = json.loads((HERE / f"{name}.json").read_text())["arms"]
        for arm, values in arms.items():
            if values["points"] and arm not in ("none", "random", "latest", "keepworth", "langgraph"):
                own = values["points"]
                rows.append((f"{name.removesuffix('-read')}: `{arm}`", *(f"{100 * own.get(s, 0):.0f}" for s in stages)))
    kept = [at for at in range(len(stages)) if any(row[at + 1] != "0" for row in rows)]
    return markdown(("", *(stages[at] for at in kept)), [(row[0], *(row[at + 1] for at in kept)) for row in rows])


def note(of: Any) -> str:
    machine = of["machine"]
    return (
        f"{asked(of)} Times with temporary files {machine['temporary files']} and a load of {machine['load average']:.0f} on "
        f"{machine['cores']} cores; whoever comes first encodes for all."
    )


def asked(of: Any) -> str:
    """What was measured: the command, how many questions, under what."""
    first = next(iter(of["arms"].values()))
    packages = {name: number for arm in of["arms"].values() for name, number in arm["versions"].items()}
    listed = "; " + ", ".join(f"{name} {number}" for name, number in packages.items()) if packages else ""
    return (
        f"`{of['command']}`: {first['questions']:,} questions of {of['of']:,}, 95 % intervals over {first['clusters']} clusters, "
        f"seed 0, encoder {of['encoder']}, reader {of['reader']}{listed}."
    )


def not_run() -> str:
    of = json.loads((HERE / "locomo-found.json").read_text())
    return "\n".join(f"* {name}: {reason}." for name, reason in of["not run"].items())


def pairs() -> str:
    """Every system on every benchmark: the score where the answer is scored, else the share of evidence shown."""
    of = json.loads((HERE / "pairs.json").read_text())
    systems = list(
        dict.fromkeys(system for row in of["rows"].values() for system in row["systems"] if system != "none")
    )
    lines = []
    for name, row in of["rows"].items():
        answered = row["reader"] != "none"
        cells = []
        for system in systems:
            own = row["systems"].get(system, {})
            cell = own.get("score" if answered else "shown")
            cells.append("does not fit" if "does not fit" in own else "—" if cell is None else f"{cell['mean']:.2f}")
        lines.append((name, "score" if answered else "evidence", row["questions"], *cells))
    return markdown(("benchmark", "measured", "questions", *systems), lines, left=2)


def without_row() -> str:
    of = json.loads((HERE / "pairs.json").read_text())
    lines = [f"* {name}: {reason}." for kind in of["no row"].values() for name, reason in kind.items()]
    open_ = [name for name in (*FOUND, *READ_BY_MODEL) if name not in of["rows"]]
    if open_:
        lines.append(f"* {', '.join(open_)}: not run yet; the command goes on with them.")
    return "\n".join(lines)


def diagnosed(part: str) -> str:
    """What `benchmarks.evaluation.diagnose` measured."""
    of = json.loads((HERE / "diagnose.json").read_text())[part]
    if part == "passes":
        crossed = of["crossing"]
        curves = {name: {k: ends for k, *ends in rows} for name, rows in of["curves"].items()}
        ks = list(curves["base"])
        lines = [
            (
                f"the model {name}",
                *(f"{curves[key][k][0]:.2f} ({curves[key][k][1]:.2f} to {curves[key][k][2]:.2f})" for k in ks),
            )
            for key, name in (("base", "as it comes"), ("tuned", "tuned"))
        ]
        ahead = {"first": "The tuned model", "second": "The model as it comes", "": "Neither"}[crossed["first_ahead"]]
        where = "the curves do not cross" if crossed["k"] is None else f"the other is ahead from k = {crossed['k']} on"
        said = (
            f"{ahead} is ahead at k = 1, and {where}; they cross in {crossed['share']:.0%} of resamples. "
            f"Of {of['questions']} questions {crossed['only_first']} are solved by the tuned model alone, and "
            f"{crossed['only_second']} by the other alone, in {of['samples']} samples each."
        )
        return markdown(("pass@k", *ks), lines) + "\n\n" + said
    if part == "carries":
        lines = [
            (
                name,
                f"{of['base'][name]:.3f}",
                f"{gain['difference']:+.3f} ({gain['low']:+.3f} to {gain['high']:+.3f})",
                gain["clusters"],
            )
            for name, gain in of["gain"].items()
        ]
        said = (
            f"Mean gain where it was tuned {of['inside']:+.3f}, elsewhere {of['outside']:+.3f}. Questions are resampled, also "
            "where several are about one conversation."
        )
        return (
            markdown(("answers from the evidence", "as it comes", "gain of the tuned", "questions"), lines)
            + "\n\n"
            + said
        )
    cells = {(cell["arm"], cell["exposures"], cell["delay"]): cell for cell in of["cells"]}
    times = sorted({key[1:] for key in cells})
    lines = [
        (
            f"told {many} times" if many > 1 else "told once",
            f"{delay} more facts",
            *(span(cells[arm, many, delay]) for arm in ("weights", "store")),
        )
        for many, delay in times
    ]
    tried = ", ".join(f"{float(rate):g}" for rate in of["tried on dev"])
    said = f"{of['facts']} facts; learning rate {of['rate']:g}, the best of {tried} on other people."
    return markdown(("exposures", "after", "weights", "store"), lines, left=2) + "\n\n" + said


SHORT = {
    "longmemeval-read": "LongMemEval",
    "longmemeval+50-read": "with 50 sessions of others",
    "longmemeval+500-read": "one haystack, 500 more",
    "locomo-read": "LoCoMo",
}
DRAWN = ("oracle", "mem0", "bm25", "keepworth", "langgraph", "random", "none")
"""From top to bottom. `dense` finds what `langgraph` does, `search` what `keepworth` does, `latest` is another control."""


def picture(names: Sequence[str], path: Path, columns: int) -> None:
    """The score of each system with its 95 % interval; two pixels for each that a page shows."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from keepworth.page.charts import PALETTE

    lines = -(-len(names) // columns)
    measured = [json.loads((HERE / f"{name}.json").read_text())["arms"] for name in names]
    most = max(arms[arm]["scores"]["score"]["high"] for arms in measured for arm in DRAWN if arm in arms)
    figure = Figure(figsize=(4.15 * columns, 2.4 * lines), dpi=200, layout="constrained")
    FigureCanvasAgg(figure)
    for place, (name, arms) in enumerate(zip(names, measured, strict=True)):
        axes = figure.add_subplot(lines, columns, place + 1)
        axes.set_title(SHORT[name], loc="left", fontsize=10, fontweight="bold")
        own = [arm for arm in DRAWN if arm in arms]
        for at, arm in enumerate(own):
            cell = arms[arm]["scores"]["score"]
            colour = PALETTE[0] if arm == "keepworth" else "#6b7280"
            axes.plot([cell["low"], cell["high"]], [at, at], color=colour, lw=5, alpha=0.3, solid_capstyle="round")
            axes.plot(cell["mean"], at, "o", color=colour, ms=5)
        axes.set_yticks(range(len(own)), own)
        axes.invert_yaxis()
        axes.set_xlim(0.0, 1.02 * most)
        one_a_line(axes)
        axes.set_xlabel("token F1", fontsize=9, color="#555555")
    figure.savefig(path, facecolor="white")


READ = ("longmemeval-read", "longmemeval+50-read", "longmemeval+500-read", "locomo-read")


def main() -> None:
    takes_nothing(__doc__)
    filled(PAGE, "locomo-found", found("locomo-found"))
    for name, depth in FUSED.items():
        if (HERE / f"{name}.json").exists():
            filled(PAGE, name, fused(name, depth))
    measured = [name for name in READ if (HERE / f"{name}.json").exists()]
    for name in measured:
        filled(PAGE, name, read(name))
    filled(PAGE, "points", points(measured))
    picture(measured, PAGE.parent / "images" / "evaluation.png", 2)
    picture(measured, PAGE.parent / "images" / "evaluation_narrow.png", 1)
    if (HERE / "pairs.json").exists():
        filled(PAGE, "pairs", pairs())
        filled(PAGE, "without-row", without_row())
    filled(PAGE, "not-run", not_run())
    if (HERE / "diagnose.json").exists():
        for part in ("passes", "carries", "retention"):
            filled(STATISTICS, part, diagnosed(part))


if __name__ == "__main__":
    main()

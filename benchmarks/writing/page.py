"""Put what writers keep, what learning gains of it and which credit is worth its cost into docs/writing.md, with a picture;
and the short runs of recipes into docs/recipes.md.

python -m benchmarks.writing.page
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.pictures import plain
from benchmarks.tables import filled, markdown, takes_nothing
from benchmarks.writing.setting import HERE

PAGE = HERE.parents[1] / "docs" / "writing.md"
RECIPES = PAGE.parent / "recipes.md"
IMAGES = PAGE.parent / "images"
WHO = {
    "nothing": "keep nothing",
    "latest": "the latest",
    "reservoir": "evenly drawn",
    "longest": "the longest",
    "most digits": "most digits",
    "most names": "most names",
    "most specific": "most specific: digits, names, dates, money",
    "about me": "about the speaker",
    "most diverse": "most diverse",
    "best of 200 rules": "best of 200 randomly weighted rules, chosen by evidence",
    "log alone": "**small policy, from the log alone**",
    "log alone, rewards permuted": "the same, rewards permuted",
    "small policy": "**small policy, in step with the reader**",
    "small policy, rewards permuted": "the same, rewards permuted",
    "model, warm start": "SmolLM2-135M after its warm start (it imitates *most specific*)",
    "model": "**SmolLM2-135M after reinforcement**",
    "model, rewards permuted": "the same, rewards permuted",
    "model from the log": "**SmolLM2-135M, taught by the log of rewards**",
    "head on the model from the log": "**a head of 577 numbers on its states, from the log**",
    "head on the model from the log, rewards permuted": "the same, rewards permuted",
    "supervised, no vectors": "supervised on evidence, hand features",
    "supervised": "supervised on evidence, with sentence vectors",
    "oracle": "oracle",
}
CHANGING = {
    "nothing": "keep nothing",
    "evenly drawn": "8 of 16, evenly drawn",
    "latest": "the latest 8",
    "always add": "always add",
    "always add, with dates": "always add, with dates",
    "always add, all shown": "always add, all entries shown",
    "shared names": "replace by shared names",
    "shared words": "replace by shared words",
    "cosine": "replace by sentence vectors",
    "small policy": "**small policy, from reward**",
    "small policy, rewards permuted": "the same, rewards permuted",
    "oracle": "oracle: what is true now",
}
DRAWN = {
    "oracle": "oracle",
    "model": "135M model, reinforced",
    "model, warm start": "135M model, warm start",
    "model from the log": "135M model, from the log",
    "head on the model from the log": "head on the 135M model",
    "small policy": "small policy, reinforced",
    "log alone": "small policy, log alone",
    "best of 200 rules": "best of 200 rules",
    "most specific": "most specific",
    "latest": "the latest",
}
ENDPOINT = "endpoint "
"""What the names of chat models begin with, where some were measured."""
LEARNED = ("model", "model from the log", "head on the model from the log", "small policy", "log alone")
WORLDS = {"4 of 16": "", "4 of 32": "-32"}
"""The worlds on the page, and what the marks of their tables end with."""


def cell(value: dict[str, float] | None) -> str:
    return "" if value is None else f"{value['mean']:.2f} ({value['low']:.2f} to {value['high']:.2f})"


def writers(world: dict[str, Any]) -> str:
    rows = {row["arm"]: row for row in world["rows"]}
    asked = [arm for arm in rows if arm.startswith(ENDPOINT)]
    lines = [
        (said, rows[arm]["seeds"], cell(rows[arm].get("evidence")), cell(rows[arm].get("f1")))
        for arm, said in (*WHO.items(), *((arm, f"{arm.removeprefix(ENDPOINT)}, not trained") for arm in asked))
        if arm in rows
    ]
    return markdown(("who decides what stays", "seeds", "evidence kept", "F1 of the reader"), lines)


def gaps(world: dict[str, Any]) -> str:
    measured: dict[tuple[str, str], dict[str, Any]] = {}
    for gap in world["gaps"]:
        measured.setdefault((gap["arm"], gap["minus"]), {})[gap["measure"]] = gap
    lines = []
    for (arm, minus), of in measured.items():
        if "permuted" in arm or arm == "model, warm start" or minus == "supervised":
            continue
        lines.append(
            (f"{DRAWN.get(arm, arm)} minus {DRAWN.get(minus, minus)}", *(signed(of.get(m)) for m in ("evidence", "f1")))
        )
    return markdown(("difference, question by question", "evidence kept", "F1"), lines)


def signed(gap: dict[str, float] | None) -> str:
    return "" if gap is None else f"{gap['difference']:+.2f} ({gap['low']:+.2f} to {gap['high']:+.2f})"


def credit(record: dict[str, Any]) -> str:
    against = {row["form"]: row for row in record["against"]}
    lines = [
        (
            row["form"],
            f"{row['evidence']:.2f} ({row['low']:.2f} to {row['high']:.2f})",
            signed(against.get(row["form"])),
            "never above its start" if row["readings_to_90"] is None else f"{row['readings_to_90']:,}",
        )
        for row in record["rows"]
    ]
    head = ("credit of a write", "evidence kept", "minus episode", "readings to 90 % of its gain")
    return markdown(head, lines)


def control(world: dict[str, Any]) -> str:
    """The model beside its control, on the folds that there are of both."""
    of = world["control"]
    arms = ("model, warm start", "model", "model, rewards permuted")
    lines = [
        (DRAWN.get(arm, "135M model, rewards permuted"), cell(of[arm]), signed(of.get(f"{arm} - warm start")))
        for arm in arms
    ]
    head = ("writer", "evidence kept", "minus warm start")
    parts = f"{of['streams']} streams, {of['model']['clusters']} clusters: seed and fold {', '.join(of['parts'])}."
    return f"{markdown(head, lines)}\n\n{parts}"


CARRIED = {
    "latest": "the latest",
    "reservoir": "evenly drawn",
    "longest": "the longest",
    "most specific": "most specific",
    "best of 200 rules": "best of 200 rules",
    "log alone": "**small policy, log alone**",
    "log alone, no vectors": "the same without sentence vectors",
    "small policy": "**small policy, in step with the reader**",
    "small policy, rewards permuted": "the same, rewards permuted",
    "oracle": "oracle",
}
CARRIED_SHORT = {
    "latest": "the latest",
    "most specific": "most specific",
    "best of 200 rules": "best of 200 rules",
    "log alone": "log alone",
    "log alone, no vectors": "log alone, no vectors",
    "small policy": "in step with the reader",
}


def evolved(record: dict[str, Any]) -> str:
    """Arms of `benchmarks.writing.evolve`, of rules and of the model, with their differences."""
    tables = []
    for part, head in (("rules", "who edits"), ("model", "who edits, two folds")):
        of = record[part]
        lines = [
            (
                row["arm"],
                row["seeds"],
                f"{row['evidence']:.2f} ({row['low']:.2f} to {row['high']:.2f})",
                "" if row["learned_on"] is None else f"{row['learned_on']:.2f}",
                "" if row["learned_on"] is None else f"{row['wasted']:.0f} of {record['rounds']}",
            )
            for row in of["rows"]
        ]
        tables.append(markdown((head, "seeds", "evidence kept", "on the streams learned from", "rounds lost"), lines))
        differences = [(f"{gap['arm']} minus {gap['minus']}", signed(gap)) for gap in of["gaps"]]
        tables.append(markdown(("difference", "evidence kept"), differences))
    return "\n\n".join(tables)


def carried_columns(worlds: dict[str, Any]) -> list[tuple[str, str]]:
    """(world, measure): no F1 where nothing was read."""
    return [(name, each) for name, of in worlds.items() for each in ("evidence", "f1") if each != "f1" or of["read"]]


def carried(record: dict[str, Any]) -> str:
    """What writers of LongMemEval keep in other worlds."""
    worlds = record["worlds"]
    rows = {name: {row["arm"]: row for row in of["rows"]} for name, of in worlds.items()}
    columns = carried_columns(worlds)
    lines = [
        (said, *(cell(rows[name].get(arm, {}).get(measure)) for name, measure in columns))
        for arm, said in CARRIED.items()
    ]
    head = ("who decides what stays", *(f"{name}: {measure.replace('f1', 'F1')}" for name, measure in columns))
    sizes = "; ".join(
        f"{name}: {of['streams']} streams, {of['clusters']} clusters, F1 over {of['read'] or 'none'} of the streams"
        for name, of in worlds.items()
    )
    return f"{markdown(head, lines)}\n\n{sizes}."


def carried_gaps(record: dict[str, Any]) -> str:
    worlds = record["worlds"]
    measured: dict[tuple[str, str], dict[tuple[str, str], dict[str, Any]]] = {}
    for name, of in worlds.items():
        for gap in of["gaps"]:
            measured.setdefault((gap["arm"], gap["minus"]), {})[name, gap["measure"]] = gap
    columns = carried_columns(worlds)
    lines = [
        (f"{CARRIED_SHORT[arm]} minus {CARRIED_SHORT[minus]}", *(signed(of.get(column)) for column in columns))
        for (arm, minus), of in measured.items()
        if "permuted" not in arm
    ]
    head = ("difference", *(f"{name}: {measure.replace('f1', 'F1')}" for name, measure in columns))
    return markdown(head, lines)


READ_BY = {"plain": "plain reader", "later": "reader taught that the later counts"}


def changing(world: dict[str, Any]) -> str:
    rows = {row["arm"]: row for row in world["rows"]}
    lines = []
    for arm, text in CHANGING.items():
        row = rows[arm]
        banks = [
            f"{row[each]['mean']:.{places}f}" if each in row else "" for each, places in (("true", 2), ("stale", 1))
        ]
        lines.append((text, row["seeds"], *banks, *(cell(row[reader]) for reader in READ_BY)))
    head = ("writer", "seeds", "true facts in the bank", "stale entries")
    return markdown((*head, *(f"F1: {text}" for text in READ_BY.values())), lines)


def changing_kinds(world: dict[str, Any]) -> str:
    """F1 by what became of the thing asked for."""
    rows = {row["arm"]: row for row in world["rows"]}
    kinds = {"changed": "changed", "same": "never changed", "unknown": "withdrawn"}
    lines = [
        (CHANGING[arm], *(f"{rows[arm]['by kind'][reader][kind]:.2f}" for reader in READ_BY for kind in kinds))
        for arm in ("always add", "cosine", "small policy", "oracle")
    ]
    named = (f"{reader}: {text} ({world['questions'][kind]})" for reader in READ_BY for kind, text in kinds.items())
    return markdown(("writer", *named), lines)


def changing_gaps(world: dict[str, Any]) -> str:
    by: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    for gap in world["gaps"]:
        by.setdefault((gap["arm"], gap["minus"]), {})[gap["measure"]] = gap
    lines = [
        (f"{CHANGING[arm]} minus {CHANGING[minus]}".replace("**", ""), *(signed(of[reader]) for reader in READ_BY))
        for (arm, minus), of in by.items()
        if all(reader in of for reader in READ_BY)
    ]
    return markdown(("difference, question by question", *(f"F1: {text}" for text in READ_BY.values())), lines)


def changing_about(world: dict[str, Any]) -> str:
    """What the tables were made with."""
    rules = ", ".join(f"{CHANGING[name].split(' by ')[1]} {rule['threshold']}" for name, rule in world["rules"].items())
    return (
        f"{world['streams']} test streams of {world['length']} facts, one question each; intervals resample streams. "
        f"The bank has room for all facts. A reader is shown the {world['shown']} entries nearest to the question by "
        f"sentence vectors, in the order in which they came. Thresholds of the rules: {rules}. "
        f"The policy has {world['parameters']} numbers, plays {world['banks of a policy']:,} banks and learns in "
        f"{world['cpu seconds of a policy']:.0f} seconds of one core."
    )


def changing_why(world: dict[str, Any]) -> str:
    rows = {row["arm"]: row for row in world["rows"]}
    stand_in = {arm: f"{rows[arm]['stand-in']['mean']:.2f}" for arm in rows if "stand-in" in rows[arm]}
    gap = {(each["arm"], each["minus"], each["measure"]): signed(each) for each in world["gaps"]}
    policy, parts = "small policy", []
    for reader, text in READ_BY.items():
        always, oracle = (world["answers"][reader][arm] for arm in ("always add", "oracle"))
        parts.append(
            f"**{text.capitalize()}.** The oracle is {gap['oracle', 'always add', reader]} ahead of always adding, the small "
            f"policy {gap[policy, 'always add', reader]}. Against the best rule the policy is {gap[policy, 'cosine', reader]}. "
            f"{oracle['n']} questions have an answer. The entries shown hold it for {always['shown']:.0%} of them where "
            f"everything was added, and for {oracle['shown']:.0%} with the oracle's bank. The reader answers with an outdated "
            f"value in {always['once']:.0%} and {oracle['once']:.0%} of them; its F1 is {always['f1']:.2f} and "
            f"{oracle['f1']:.2f}."
        )
    return "\n\n".join([
        *parts,
        f"**With the stand-in reader that it learned from,** the policy earns {stand_in[policy]} on the same test streams, "
        f"always adding {stand_in['always add']}, permuted rewards {stand_in[f'{policy}, rewards permuted']}, the best rule "
        f"{stand_in['cosine']} and the oracle {stand_in['oracle']}.",
    ])  # fmt: skip


SIMPLE = ("the latest", "the longest", "most digits", "most names", "most specific")


def short_runs(record: dict[str, Any]) -> str:
    """What the recipes kept of the evidence in short runs, beside their headroom."""
    lines = []
    for name, run in record.items():
        for split, room in run["headroom"].items():
            kept = {row["arm"]: row for row in run["measured"][split]["arms"] if row["metric"] == "evidence_kept"}
            best = max(SIMPLE, key=lambda rule: room[rule]["mean"])
            gain = [
                gap
                for gap in run["measured"][split]["gaps"]
                if (gap["minus"], gap["metric"]) == ("warm_start", "evidence_kept")
            ]
            facts = split.removeprefix("test of ") if split != "test" else "16"
            lines.append((
                f"`{name}`", facts, f"{room['chance']['mean']:.2f}", f"{room[best]['mean']:.2f} ({best})",
                f"{room['oracle']['mean']:.2f}",
                f"{kept['untrained']['mean']:.2f}" if "untrained" in kept else "",
                cell(kept["warm_start"]), cell(kept["trained"]), signed(gain[0]),
                run["config"]["steps"], room["oracle"]["clusters"],
            ))  # fmt: skip
    head = (
        *(
            "recipe",
            "facts",
            "chance",
            "best simple rule",
            "oracle",
            "untrained",
            "warm start",
            "trained",
            "trained minus warm start",
        ),
        *("updates", "questions"),
    )
    return f"{markdown(head, lines)}\n\n{intrinsic(record)}"


def intrinsic(record: dict[str, Any]) -> str:
    """Memory-R+ beside the same recipe without its reward, question by question, where both were run alike."""
    from keepworth.evaluation.statistics import paired_difference

    runs = [record[name]["measured"]["test"] for name in ("memory_r_plus", "bounded_bank")]
    (own, plain) = ({(row["arm"], row["metric"]): row["values"] for row in run["arms"]} for run in runs)
    arm = "trained", "evidence_kept"
    apart = [a - b for a, b in zip(own[arm], plain[arm], strict=True)]
    gap = paired_difference("memory_r_plus", apart, clusters=runs[0]["clusters"])
    shown = {"difference": gap.difference, "low": gap.low, "high": gap.high}
    return f"After their updates `memory_r_plus` keeps {signed(shown)} more of the evidence than `bounded_bank`, one seed each."


def picture(worlds: dict[str, Any], record: dict[str, Any], path: Path, wide: bool) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from keepworth.page.charts import PALETTE

    figure = Figure(figsize=(8.3, 6.4) if wide else (4.15, 9.6), dpi=200, layout="constrained")
    FigureCanvasAgg(figure)
    places = [["16", "32"], ["credit", "credit"]] if wide else [["16"], ["32"], ["credit"]]
    panels = list(figure.subplot_mosaic(places).values())
    for axes, (name, world) in zip(panels, worlds.items(), strict=False):
        rows = {row["arm"]: row for row in world["rows"]}
        own = [arm for arm in DRAWN if "f1" in rows.get(arm, {})]
        for at, arm in enumerate(own):
            value, colour = rows[arm]["f1"], PALETTE[0] if arm in LEARNED else "#6b7280"
            axes.plot([value["low"], value["high"]], [at, at], color=colour, lw=5, alpha=0.3, solid_capstyle="round")
            axes.plot(value["mean"], at, "o", color=colour, ms=5)
        axes.set_yticks(range(len(own)), [DRAWN[arm] for arm in own])
        axes.invert_yaxis()
        axes.set_xlim(0.1, 0.85)
        axes.set_title(f"Answers from {name} facts", loc="left", fontsize=10, fontweight="bold")
        axes.set_xlabel("token F1 of the frozen reader", fontsize=9, color="#555555")
    axes = panels[-1]
    for number, row in enumerate(row for row in record["rows"] if "permuted" not in row["form"]):
        points = sorted((int(look), value) for look, value in row["curve"].items())
        axes.plot(*zip(*points, strict=True), color=PALETTE[number % len(PALETTE)], lw=1.6, label=row["form"])
    axes.set_title("Credit of a write, 4 of 16 facts", loc="left", fontsize=10, fontweight="bold")
    axes.set_xlabel("readings", fontsize=9, color="#555555")
    axes.set_ylabel("evidence kept", fontsize=9, color="#555555")
    axes.legend(fontsize=7, frameon=False, loc="lower right")
    for axes in panels:
        plain(axes, grid="both" if axes is panels[-1] else "x")
    figure.savefig(path, facecolor="white")


def keeping(worlds: dict[str, Any]) -> str:
    """What a keeper keeps of the evidence, beside the best rule of one line."""
    arms = (
        *("chance", "has digits", "", "the keeper as it begins", "after 400 rewards", "after 400 permuted rewards"),
        "regression on the evidence",
    )
    rows = []
    for name, found in worlds.items():
        kept, best, promises = found["kept"], found["best rule"], found["promises"]
        cells = [f"{kept[arm or best]['mean']:.3f}" + ("" if arm else f" ({best})") for arm in arms]
        more = found["more than the best rule"]["after 400 rewards"]
        gain = f"{more['mean']:+.3f}, {more['low']:+.3f} to {more['high']:+.3f}"
        rows.append([name, *cells, gain, f"{promises['covered']} of {promises['of']}"])
    head = [
        "conversations",
        "chance",
        "has digits",
        "best rule of one line",
        "`Keeper` as it begins",
        "after 400 rewards",
    ]
    head += [
        "after 400 permuted",
        "regression on the evidence",
        "more than the best rule",
        "promised gains that cover what was earned",
    ]
    return markdown(head, rows)


def main() -> None:
    takes_nothing(__doc__)
    filled(PAGE.with_name("memory.md"), "keeping", keeping(json.loads((HERE / "keeping.json").read_text())["worlds"]))
    worlds = json.loads((HERE / "writers.json").read_text())["worlds"]
    forms = json.loads((HERE / "credit.json").read_text())["worlds"]
    for name, mark in WORLDS.items():
        if name in worlds:
            filled(PAGE, f"writers{mark}", writers(worlds[name]))
            filled(PAGE, f"writers-gaps{mark}", gaps(worlds[name]))
            if worlds[name].get("control"):
                filled(PAGE, f"control{mark}", control(worlds[name]))
        if name in forms:
            filled(PAGE, f"credit{mark}", credit(forms[name]))
    filled(PAGE.with_name("recipes.md"), "short-runs", short_runs(json.loads((HERE / "recipes.json").read_text())))
    elsewhere = json.loads((HERE / "transfer.json").read_text())
    filled(PAGE, "transfer", carried(elsewhere))
    filled(PAGE, "transfer-gaps", carried_gaps(elsewhere))
    filled(RECIPES, "evolve", evolved(json.loads((HERE / "evolve.json").read_text())))
    changes = json.loads((HERE / "changing.json").read_text())
    filled(PAGE, "changing-about", changing_about(changes))
    filled(PAGE, "changing", changing(changes))
    filled(PAGE, "changing-kinds", changing_kinds(changes))
    filled(PAGE, "changing-why", changing_why(changes))
    filled(PAGE, "changing-gaps", changing_gaps(changes))
    picture(worlds, forms["4 of 16"], IMAGES / "writing.png", True)
    picture(worlds, forms["4 of 16"], IMAGES / "writing_narrow.png", False)


if __name__ == "__main__":
    main()

"""`keepworth methods`: every method by name, with its measurements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from keepworth.base.errors import KeepworthError, UnknownName, called_as, require_known
from keepworth.cli.command import App, argument, option
from keepworth.cli.output import say, say_json, say_terms, say_text, working
from keepworth.evaluation.paper_system import PaperSystem
from keepworth.evaluation.verdicts import ABSENT, GAIN, NEAR, RULE, STALE, VERDICTS, command_gone, is_dirty
from keepworth.registry import KINDS, PACKAGE, TAGS, broken, evidence, failed_entry, file_of, methods, spelling

app = App(
    help="Every method by name, with its paper and its verdict.", no_args_is_help=False, invoke_without_command=True
)

UNMEASURED = "not measured"
LONGEST_COMMAND = 400
"""Characters of a command that `show` prints."""


@app.callback()
def list_methods(
    context: typer.Context,
    kind: Annotated[str, option("--kind", "Only methods of this kind: policy, recipe, world ...")] = "",
    tag: Annotated[str, option("--tag", "Only methods with this tag: experiential, retrieval, latent ...")] = "",
    as_json: Annotated[bool, option("--json", "Print a line of JSON per method.")] = False,
) -> None:
    """List the methods."""
    if context.invoked_subcommand:
        return
    if tag:
        require_known("tag", tag, [tag for tags in TAGS.values() for tag in tags])
    wanted = kind.replace("-", "_")
    kinds = [name for name in KINDS if name == require_known("kind", wanted, KINDS)] if kind else KINDS
    counted, uncommitted = Counter[str](), 0
    for name in kinds:
        tagged = [method for method in methods(name).values() if not tag or tag in method.tags]
        rows = sorted(tagged, key=lambda method: method.name)
        if as_json:
            for method in rows:
                say_json(_row(method))
        elif rows:
            say(f"\n{name}")
            say_terms([(method.name, f"{method.about}{_paper(method)} [{_marked(method)}]") for method in rows])
        counted.update(map(_verdict, rows))
        uncommitted += sum(_is_dirty(method) for method in rows)
    if not as_json and counted:
        numbers = ", ".join(f"{counted[verdict]} {verdict}" for verdict in (*VERDICTS, UNMEASURED) if counted[verdict])
        say("")
        say_text(f"{counted.total()} methods: {numbers}.")
    if not as_json and uncommitted:
        say_text(f"* {uncommitted} of them were measured on a tree with changes that are in no commit.")
    for file in broken():
        say(f"\nnot loaded: {file.path}: {file.reason}", error=True)


@app.command(examples="keepworth methods show memrl")
def show(
    name: Annotated[str, argument("", "The method's name.")],
    as_json: Annotated[bool, option("--json", "Print a line of JSON for each kind of method of this name.")] = False,
) -> None:
    """Print a method's claim, what differs from its paper, and what was measured."""
    every = (method for kind in KINDS for method in methods(kind).values())
    of_name = [method for method in every if spelling(method.name) == spelling(name)]
    if not of_name and (failed := failed_entry(name)) is not None:
        raise KeepworthError(f"The method {name!r} cannot be loaded.", f"Mend {failed.path}: {failed.reason}")
    if not of_name:
        raise UnknownName("method", name, methods())
    for method in of_name:
        measured = _measured(method)
        if as_json:
            say_json({**_row(method), "evidence": measured})
            continue
        rows = [("kind", method.kind), ("paper", method.paper), ("what it does", method.about), ("claim", method.claim)]
        if isinstance(method.make, PaperSystem):
            rows += [("is here", method.make.here), ("runs by", method.make.command)]
        rows += [("differs", method.differs), ("plain notes", method.notes), ("label", method.label)]
        rows += [("tags", ", ".join(method.tags)), ("needs", method.extra)]
        rows += [("can leave out", ", ".join(method.parts)), ("file", file_of(method.kind, method.name))]
        on = ", ".join(f"{name}={value}" for name, value in method.on.items())
        rows += [
            (
                f"{name}+on",
                f"{on}: measured with these settings, too, as its mechanism seldom decides anything with others"
                if on
                else "",
            )
        ]
        report: Any = measured or {}
        rows += [("verdict", _verdict(method)), *_judged(report)] if report else [("verdict", UNMEASURED)]
        rows += [("measured", report.get("sentence", "")), ("unit", report.get("unit", ""))]
        rows += [("controls", ", ".join(report.get("controls", ())))]
        when = f"{report.get('revision')}, at which the command was run"
        when += ", on a tree with changes that are in no commit" if report and is_dirty(report) else ""
        rows += [("revision", when if report else "")]
        say(method.title)
        say_terms([(term, text) for term, text in rows if text])
        if method.kind == "objective":
            say_terms(_objective_rows(name))
        if command := report.get("command", ""):  # to be copied, so it is not broken
            say(f"  command: {command if len(command) <= LONGEST_COMMAND else '--json prints it, as it is long'}")
        worlds: dict[str, list[str]] = {}
        gaps: list[Any] = []
        for arm in report.get("arms", ()):
            of, _, world = arm["name"].partition(" on ")
            if world:
                worlds.setdefault(f"{world} (n = {arm['n']})", []).append(f"{of} {arm['mean']:.3f}")
            else:
                say(f"  {of}: {arm['mean']} {arm.get('interval') or ''} (n = {arm.get('n', '')})")
        for gap in report.get("comparisons", ()):
            other, _, world = gap["against"].rpartition(" on ")
            line = next((line for name, line in worlds.items() if name.startswith(f"{world} (")), None)
            if line is None:
                gaps.append(gap)
            else:
                line.append(f"{gap['mean']:+.3f} against {other}")
        if worlds:
            say_terms([(world, ", ".join(means)) for world, means in worlds.items()])
            say("  These are means; --json prints their intervals, too.")
        for gap in gaps:
            say(f"  against {gap['against']}: {gap['mean']:+} {gap.get('interval') or ''}")


@app.command(examples="keepworth methods run mr_rec --set users=200")
def run(
    name: Annotated[str, argument("", "A study: see keepworth methods --kind study.")],
    assign: Annotated[list[str] | None, option("--set NAME=VALUE", "A setting of the study: seed=1, ...")] = None,
    as_json: Annotated[bool, option("--json", "Print a line of JSON per row.")] = False,
) -> None:
    """Run a study, and print its table."""
    from keepworth.evaluation.study import Study
    from keepworth.registry import method
    from keepworth.worlds.benchmark import read_settings

    study = method("study", name).make
    if not isinstance(study, Study):
        raise KeepworthError(f"The make of the study {name!r} is {study!r:.60}.", "Write make=Study(run, unit).")
    settings = read_settings(study.settings(), assign or [], f"study {name!r}") if study.run else {}
    with working(f"running {name}, which may take minutes"), called_as(f"The study {name}"):
        rows = list(study(**settings)())
    print_rows(name, study.unit, rows, as_json)


def print_rows(name: str, unit: str, rows: Sequence[Mapping[str, Any]], as_json: bool) -> None:
    """Prints the table of a study.

    Args:
        name: The study, which each line of JSON repeats.
        unit: What the numbers count, for the last line.
        rows: One for each arm: its mean with the interval from low to high, n, and the number of clusters.
        as_json: Whether each row is printed as a JSON object instead.
    """
    width = max([28, *(len(row["arm"]) for row in rows)])
    for row in rows:
        if as_json:
            say_json({"study": name, "unit": unit, **row})
            continue
        interval = f"[{row['low']:.3f}, {row['high']:.3f}]"
        say(f"{row['arm']:<{width}} {row['mean']:.3f} {interval} (n = {row['n']}, {row['clusters']} clusters)")
    if not as_json:
        say(f"{unit}; 95 % intervals over clusters")


def _row(method: Any) -> dict[str, Any]:
    names = ("kind", "name", "title", "paper", "about", "claim", "differs", "label", "tags", "extra", "parts", "on")
    measured = _measured(method) or {}
    file = f"benchmarks/methods/{measured['file']}" if measured else ""
    judged = {"verdict": _verdict(method), "bound": measured.get("bound"), "uncommitted": _is_dirty(method)}
    return {**{name: getattr(method, name) for name in names}, **judged, "evidence": file}


READ_FROM = {
    "code": "the method's public code",
    "text": "the method's paper or documentation",
    "secondary": "descriptions by others",
}
"""The sources that an objective was checked against, by the status of its citation."""


def _objective_rows(name: str) -> list[tuple[str, str]]:
    """Describes an objective's options as a configuration has them, its needs and its source."""
    from keepworth.training.objective.inputs import episode_inputs, inputs
    from keepworth.training.objective.presets import preset, source_of

    objective, source = preset(name), source_of(name)
    settings = objective.model_dump(exclude_none=True)
    rows = [(f"objective.{axis}", str(value)) for axis, value in settings.items() if axis != "name" and value != 0.0]
    needs = (*inputs(objective), *episode_inputs(objective), source.needs)
    rows += [("needs of a run", ", ".join(filter(None, needs))), ("read from", READ_FROM[source.status])]
    rows += [("note", source.note), ("not verified", " ".join(source.unverified))]
    return [(term, text) for term, text in rows if text]


def _paper(method: Any) -> str:
    return f" ({method.paper})" if method.paper else ""


def _measured(method: Any) -> dict[str, Any] | None:
    """The evidence of a method; in a checkout without its command it is stale, whatever the file says."""
    measured = evidence(method)
    root = PACKAGE.parents[1]
    if measured and (root / "benchmarks" / "methods").is_dir() and (why := command_gone(measured["command"], root)):
        return measured if measured["verdict"] == STALE else {**measured, "verdict": STALE, "because": why}
    return measured


def _verdict(method: Any) -> str:
    return str((_measured(method) or {}).get("verdict", UNMEASURED))


def _marked(method: Any) -> str:
    where = (_measured(method) or {}).get("where", "")
    return f"{_verdict(method)}{'*' if _is_dirty(method) else ''}{where and f': {where}'}"


def _is_dirty(method: Any) -> bool:
    measured = evidence(method)
    return measured is not None and is_dirty(measured)


def _judged(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what a verdict means, the numbers that it is from, the largest gain that they allow, and the rule."""
    rule, bound = report["rule"], report["bound"]
    differing = ", ".join(
        f"{name} {rule[name]} instead of {usual}"
        for name, usual in (("gain", GAIN), ("near", NEAR), ("range", 1.0))
        if rule.get(name, usual) != usual
    )
    least = f"{bound:+.3f} is the largest gain that the numbers allow" if bound is not None else ""
    return [
        ("which means", VERDICTS[report["verdict"]]),
        ("where", report["where"]),
        ("because", report["because"]),
        ("bound", least if report["verdict"] != ABSENT else ""),
        ("claim judged", rule.get("claim", "")),
        ("rule", f"{RULE}{f' Here: {differing}.' if differing else ''}"),
    ]

"""`keepworth plan`: how many engines per learner, what staleness, what throughput, before the machines are there."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from keepworth.cli.output import Runs, say, say_json, say_terms, say_text, working

if TYPE_CHECKING:
    from keepworth.learning.planning.calibration import Calibration
    from keepworth.learning.planning.simulation import Candidate, Costs, Forecast
    from keepworth.learning.planning.workload import LogNormal, Workload

COSTS = ("step", "read", "call", "learn", "update", "gradient", "publish", "between", "contention")


def plan(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RUN",
            help="A run whose work and costs are taken; a second one that overlaps says how much both slow each other down.",
        ),
    ] = None,
    costs: Annotated[
        Path | None,
        typer.Option("--costs", help=f"A JSON file with costs in seconds, over those of the run: {', '.join(COSTS)}."),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option("--trace", help="Work: a file with one group a line, as docs/asynchrony.md has it."),
    ] = None,
    lengths: Annotated[
        str,
        typer.Option(
            "--lengths", metavar="MEDIAN:SIGMA:LONGEST", help="Work: log-normal lengths of answers, in tokens."
        ),
    ] = "",
    waits: Annotated[
        str, typer.Option("--waits", metavar="MEDIAN:SIGMA:LONGEST", help="With --lengths: seconds in environments.")
    ] = "",
    prompt: Annotated[int, typer.Option("--prompt", min=0, help="With --lengths: tokens of a prompt.")] = 512,
    group_size: Annotated[
        int | None, typer.Option("--group-size", min=1, help="With --lengths: episodes of a group.", show_default="8")
    ] = None,
    groups: Annotated[
        int | None,
        typer.Option("--groups", min=1, help="Groups of an update.", show_default="those of the run, else 8"),
    ] = None,
    mode: Annotated[
        str,
        typer.Option(
            "--mode", help="apart: engines and learners on machines of their own; turns, overlap: one process."
        ),
    ] = "apart",
    engines: Annotated[str, typer.Option("--engines", metavar="N,...", help="How many to try.")] = "",
    learners: Annotated[str, typer.Option("--learners", metavar="N,...", help="How many to try.")] = "",
    gpus: Annotated[
        int | None, typer.Option("--gpus", help="Try the ways to split so many GPUs, one an engine or a learner.")
    ] = None,
    staleness: Annotated[
        str, typer.Option("--staleness", metavar="N,...", help="Bounds to try; the highest is yours.")
    ] = "0,1,2,4",
    depth: Annotated[
        float | None,
        typer.Option("--depth", help="Batches of groups under way.", show_default="as many as the staleness allows"),
    ] = None,
    slots: Annotated[
        int | None,
        typer.Option("--slots", min=1, help="Sequences of an engine.", show_default="those of the run, else 32"),
    ] = None,
    caches: Annotated[
        str, typer.Option("--caches", help="Of unfinished sequences at a publication: recompute or keep.")
    ] = "recompute",
    updates: Annotated[int, typer.Option("--updates", min=1, help="How many are simulated.")] = 20,
    role: Annotated[str, typer.Option("--role", help="Which of the run's roles, where it trained several.")] = "",
    seed: Annotated[int, typer.Option("--seed", help="Of what is drawn with --lengths.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print assumptions, costs and forecasts as JSON.")] = False,
    runs: Runs = Path("runs"),
) -> None:
    """Simulate a training pipeline on machines that are not here.

    It answers how many engines a learner needs, what staleness pays, and how many updates an hour to expect. The costs come
    from a run, or from a file; the assumptions are printed first."""
    from keepworth.episodes.errors import KeepworthError
    from keepworth.learning.planning.calibration import replayed
    from keepworth.learning.planning.simulation import ASSUMPTIONS, simulated

    stated_by = {"--waits": waits or None, "--group-size": group_size}
    if not lengths and (idle := next((name for name, value in stated_by.items() if value is not None), None)):
        raise KeepworthError(f"{idle} says what --lengths leaves open, and that was not given.", "Add --lengths.")
    if lengths and trace is not None:
        raise KeepworthError("--trace and --lengths both say what the work is.", "Give one of them.")
    known = _calibrated(names or [], runs, role)
    work, chosen_groups = _work(known, trace, lengths, waits, prompt, group_size or 8, groups, seed)
    priced, missing = _costs(known, costs)
    tried = _candidates(
        known, chosen_groups, mode, engines, learners, gpus, _whole("--staleness", staleness), depth, slots, caches
    )
    with working(f"simulating {len(tried)} candidates"):
        forecasts = [simulated(work, priced, each, updates=updates) for each in tried]
        own = replayed(known[0], priced) if known and known[0].mode and costs is None else None
    fastest, thrifty = best(tried, forecasts)
    record = {
        "assumptions": ASSUMPTIONS,
        "costs": asdict(priced),
        "missing": missing,
        "groups": chosen_groups,
        "run": None if own is None else {"measured": known[0].seconds_per_update, "simulated": own.seconds_per_update},
        "candidates": [
            {**asdict(each), "forecast": {**asdict(made), "updates_per_hour": made.updates_per_hour}}
            for each, made in zip(tried, forecasts, strict=True)
        ],
        "best": fastest,
        "best_per_machine": thrifty,
    }
    if as_json:
        say_json(record, indent=1)
        return
    _print(record, tried, forecasts, known)


def best(tried: list[Candidate], forecasts: list[Forecast]) -> tuple[int, int]:
    """Places of the candidate with the most tokens a second, and of that with the most for each engine and learner. Of those
    within a hundredth of it the one with fewest machines, then with the least staleness."""

    def first(value: list[float]) -> int:
        near = [place for place, each in enumerate(value) if each >= 0.99 * max(value)]
        return min(near, key=lambda i: (tried[i].engines + tried[i].learners, tried[i].staleness.max_staleness))

    speed = [each.tokens_per_second for each in forecasts]
    return first(speed), first([s / (each.engines + each.learners) for s, each in zip(speed, tried, strict=True)])


def _calibrated(names: list[str], runs: Path, role: str) -> list[Calibration]:
    """Of the runs, one that overlaps last: it says how much decoding and learning slow each other down."""
    from keepworth.episodes.errors import KeepworthError

    if not names:
        if role:
            raise KeepworthError("--role is about a run, and none is named.", "Name the run.")
        return []
    from keepworth.learning.planning.calibration import calibrated
    from keepworth.learning.run_folder import find_run

    if len(names) > 2:
        raise KeepworthError(f"{len(names)} runs were named.", "Name one, or one and another that overlaps.")
    known = sorted((calibrated(find_run(name, runs), role) for name in names), key=lambda each: each.mode == "overlap")
    if len(known) == 2 and [each.mode == "overlap" for each in known] != [False, True]:
        raise KeepworthError(
            "Of two runs one has to take turns and the other to overlap.",
            "Name one with sampling = turns and one with overlap.",
        )
    return known


def _work(
    known: list[Calibration],
    trace: Path | None,
    lengths: str,
    waits: str,
    prompt: int,
    group_size: int,
    groups: int | None,
    seed: int,
) -> tuple[Workload, int]:
    """What is to be done, and in how many groups an update."""
    from keepworth.episodes.errors import KeepworthError
    from keepworth.learning.planning.workload import LogNormal, read_trace, stated

    count = groups or (known[0].groups if known else 8)
    if trace is not None:
        return read_trace(trace), count
    if lengths:
        waiting = _log_normal("--waits", waits) if waits else LogNormal(0.0)
        size, many = group_size, max(64, 16 * count)
        return stated(
            _log_normal("--lengths", lengths), waiting, prompt=prompt, group_size=size, groups=many, seed=seed
        ), count
    if not known:
        raise KeepworthError("Nothing says what the work is.", "Name a run, or give --trace or --lengths.")
    return known[0].workload, count


def _log_normal(option: str, text: str) -> LogNormal:
    from keepworth.episodes.errors import KeepworthError
    from keepworth.learning.planning.workload import LogNormal

    try:
        numbers = [float(each) for each in text.split(":")]
    except ValueError:
        numbers = []
    if not 1 <= len(numbers) <= 3:
        raise KeepworthError(f"{option} {text} is no distribution.", "Write MEDIAN:SIGMA:LONGEST, such as 300:1:4096.")
    return LogNormal(*numbers)


def _costs(known: list[Calibration], file: Path | None) -> tuple[Costs, list[str]]:
    """Of the runs, with those of the file over them; and what neither says."""
    from keepworth.episodes.errors import KeepworthError
    from keepworth.learning.planning.calibration import contended
    from keepworth.learning.planning.simulation import Costs
    from keepworth.learning.run_folder import read_json

    priced: dict[str, Any] = dict(known[0].measured) if known else {}
    missing = list(known[0].missing) if known else []
    given: dict[str, Any] = {} if file is None else read_json(file, f"It holds an object with {', '.join(COSTS)}.")
    if unknown := sorted(set(given) - set(COSTS)):
        raise KeepworthError(
            f"{file} names a cost {unknown[0]!r} that there is none of.", f"Known: {', '.join(COSTS)}."
        )
    if not known:
        missing += [f"{name}: it is taken as nothing." for name in COSTS[:-1] if name not in {*given, "step"}]
    try:
        priced |= {name: float(value) for name, value in given.items() if name != "step"}
        if "step" in given:
            priced["step"] = tuple((float(count), float(seconds)) for count, seconds in given["step"])
    except (TypeError, ValueError) as error:
        raise KeepworthError(
            f"{file} holds a cost that is no number ({error}).",
            'Such as {"step": [[1, 0.012], [64, 0.031]], "learn": 0.0001}.',
        ) from error
    if "step" not in priced:
        raise KeepworthError(
            "Nothing says how long a decoding step takes.",
            'Give --costs with a file such as {"step": [[1, 0.012], [64, 0.031]], "learn": 0.0001}.',
        )
    made = Costs(**priced)
    if len(known) == 2 and "contention" not in given:
        made = contended(made, known[1])
    elif known and "contention" not in given:
        missing.append(
            "How much engine and learner slow each other down in one process (mode overlap). They are taken not to: add a run "
            "that overlaps."
        )
    return made, missing


def _candidates(
    known: list[Calibration],
    groups: int,
    mode: str,
    engines: str,
    learners: str,
    gpus: int | None,
    bounds: list[int],
    depth: float | None,
    slots: int | None,
    caches: str,
) -> list[Candidate]:
    from keepworth.episodes.errors import KeepworthError
    from keepworth.learning.collect.admission import Staleness
    from keepworth.learning.planning.simulation import Candidate, split

    if gpus is not None and (engines or learners):
        raise KeepworthError(
            "--gpus says how many engines and learners there are.", "Leave --engines and --learners out."
        )
    if gpus is not None:
        machines = list(split(gpus))
    else:
        machines = [(e, n) for e in _whole("--engines", engines or "1") for n in _whole("--learners", learners or "1")]
    width = slots or (known[0].slots if known else 32)
    return [
        Candidate(
            Staleness(groups, bound, bound + 1.0 if depth is None else depth),
            engines=one,
            learners=other,
            slots=width,
            mode=mode,  # type: ignore[arg-type]
            caches=caches,  # type: ignore[arg-type]
        )
        for one, other in machines
        for bound in bounds
    ]


def _whole(option: str, text: str) -> list[int]:
    from keepworth.episodes.errors import KeepworthError

    try:
        return list(dict.fromkeys(int(each) for each in text.split(",")))
    except ValueError:
        raise KeepworthError(f"{option} {text} is no list of whole numbers.", f"Such as {option} 1,2,4.") from None


def _print(record: dict[str, Any], tried: list[Candidate], forecasts: list[Forecast], known: list[Calibration]) -> None:
    from keepworth.cli.tables import print_rows
    from keepworth.episodes.text import terminal

    say("It takes for granted:")
    for each in record["assumptions"]:
        say_text(f"* {each}")
    say("\nCosts in seconds:")
    say_terms((name, _cost(value)) for name, value in record["costs"].items())
    if record["missing"]:
        say("\nNot known:")
        for each in record["missing"]:
            say_text(f"* {each}")
    if own := record["run"]:
        off = own["simulated"] / own["measured"] - 1
        say(
            f"\nThe run itself: {own['measured']:.3g} s an update, simulated {own['simulated']:.3g} s ({100 * off:+.0f} %)."
        )
    headings = ["updates/h", "tokens/s", "engines idle", "learners idle", "sequences", "lag", "largest"]
    rows = [
        (
            label(each),
            [
                f"{made.updates_per_hour:.0f}",
                f"{made.tokens_per_second:.0f}",
                f"{100 * made.engine_idle:.0f} %",
                f"{100 * made.learner_idle:.0f} %",
                f"{made.sequences:.1f}",
                f"{made.mean_lag:.1f}",
                str(made.largest_lag),
            ],
        )
        for each, made in zip(tried, forecasts, strict=True)
    ]
    note = "sequences: in a decoding step of one engine. lag: updates between drawing and learning, by an episode's oldest token."
    emphasis = [place == record["best"] for place in range(len(rows))]
    print_rows(terminal(), f"{record['groups']} groups an update", headings, rows, note, emphasis=emphasis)
    say(f"\nMost tokens a second: {label(tried[record['best']])}.")
    if record["best_per_machine"] != record["best"]:
        say(f"Most for each machine: {label(tried[record['best_per_machine']])}.")


def _cost(value: Any) -> str:
    if isinstance(value, (int, float)):
        return f"{value:.3g}"
    return ", ".join(f"{seconds:.3g} with {count:.3g}" for count, seconds in value)


def label(candidate: Candidate) -> str:
    """Such as "4 engines, 1 learner, staleness 2"."""
    many = [
        f"{count} {word}{'s' if count > 1 else ''}"
        for count, word in ((candidate.engines, "engine"), (candidate.learners, "learner"))
    ]
    where = ", ".join(many) if candidate.mode == "apart" else f"one process, {candidate.mode}"
    return f"{where}, staleness {candidate.staleness.max_staleness}"

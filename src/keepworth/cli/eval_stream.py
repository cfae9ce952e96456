"""`keepworth eval stream`: memories that learn from reward, on streams, against controls."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from keepworth.cli.command import option
from keepworth.cli.output import say, say_json, say_terms, say_text, stopping

if TYPE_CHECKING:
    from keepworth.agents.simulated import ScoringAgent
    from keepworth.evaluation.stream import Job, StreamRow
    from keepworth.memory.policy.slots import Policy


STREAMS = "near-miss,noisy-reward,drift,benign,similarity-mid,similarity-low,t-maze,repeat-previous,key-door,events,tool-graph"
ATTACKS = "partners,injection,partners-late,delayed-trigger,benign,tampered-1,tampered-5,tampered-10"
ARMS = (
    "none,attempts,random,irrelevant,exprecent,exprag,remem,memento-np,memento-p,memento-kernel,rememberer,reme,memrl,amem,"
    "amemguard,kernel-mean,kernel-mean-items,nearest-mean,linucb,linear-thompson,mixture,mixture+shuffled,mixture+masked,"
    "mixture-without-kernel,mixture-without-ridge,mixture-without-words,mixture-without-fading,oracle"
)
CHANGES = {
    "+shuffled": "that method, told the rewards of other tasks",
    "+masked": "that method, choosing without the values that it learns",
    "+published": "that method with the settings of its paper",
    "+on": "that method with settings under which its mechanism decides something; others are those that it has anyway",
    "+rollback": "that method; after 60 % of the tasks all that hostile sources told is taken back",
}
AGENTS = ("usual", "linear", "tabular")
MODEL = "model:"
ATTACK_ARMS = "none,exprag,exprag+rollback,memrl,memrl+rollback,reme,amemguard,mixture"


def stream(
    streams: Annotated[
        str,
        option("--streams", "Names, separated by commas; 'all', 'attacks', or 'list' to see them.", show_default="all"),
    ] = STREAMS,
    arms: Annotated[
        str,
        option("--arms", "Methods and controls; the usual ones if not given, or 'list' to see them and their changes."),
    ] = "",
    orders: Annotated[str, option("--orders", "random, easy-to-hard, hard-to-easy, or several.")] = "random",
    seeds: Annotated[int, option("--seeds", "Rule sets; statistics need at least 3.", min=1)] = 3,
    split: Annotated[str, option("--split", "dev rules are for tuning, held-out for the final run.")] = "dev",
    length: Annotated[int, option("--length", "Tasks per stream; 0 for each stream's own.", min=0)] = 0,
    agent: Annotated[
        str,
        option(
            "--agent",
            "The frozen policy: linear (advice counts by similarity), tabular (advice counts fully), usual (tabular where "
            "memory is of one episode, else linear), or model:NAME, a language model that scores the actions.",
        ),
    ] = "usual",
    workers: Annotated[int, option("--workers", "Streams that run at the same time, a process each.", min=1)] = 1,
    tuned: Annotated[
        Path | None, option("--tuned", "Settings per kind of stream and method, as the tuner writes them.")
    ] = None,
    data: Annotated[
        Path | None, option("--data", "The folder of a published set, or one that holds such folders.")
    ] = None,
    out: Annotated[Path, option("--out", "A folder: rows, summary and page.")] = Path("runs/streams"),
    method: Annotated[
        str, option("--method", "The arm that claims are made of.", show_default="the last arm that learns")
    ] = "",
    as_json: Annotated[bool, option("--json", "Print the summary as JSON instead.")] = False,
) -> None:
    """Compare memories that learn from reward, on streams of tasks.

    Runs every arm on every stream, in every order, with every seed; then says what holds. The same command continues it.
    """
    import json
    from dataclasses import asdict
    from functools import partial

    from rich.progress import Progress

    from keepworth.environments.made_up import ORDERS, SPLITS
    from keepworth.environments.streams import missing
    from keepworth.episodes.errors import KeepworthError, UnknownName
    from keepworth.episodes.extras import require
    from keepworth.episodes.text import terminal
    from keepworth.evaluation.stream import Results, run_matrix, table
    from keepworth.evaluation.stream_claims import CONTROLS, claims, compared_method, planned
    from keepworth.evaluation.stream_page import write_stream_page

    # With --json, standard output has the result and nothing else.
    console = terminal(stderr=as_json)
    if streams == "list":
        _list_streams(as_json)
        return
    if arms == "list":
        _list_arms(as_json)
        return
    require("train", "keepworth eval stream", "scipy", "statsmodels")
    names = {"all": STREAMS, "attacks": ATTACKS}.get(streams, streams).split(",")
    chosen = (arms or (ATTACK_ARMS if streams == "attacks" else ARMS)).split(",")
    for name in names:
        lacks = missing(name, data)
        if lacks is not None:
            raise lacks
    methods = _methods()
    for arm in chosen:
        base, plus, change = arm.partition("+")
        if base not in (*methods, *CONTROLS):
            raise UnknownName("arm", arm, (*methods, *CONTROLS))
        if plus and (base in CONTROLS or plus + change not in CHANGES):
            raise KeepworthError(
                f"there is no arm {arm!r}: it is a method with one of {', '.join(CHANGES)}.",
                "Controls such as `none` take no change.",
            )
        if change == "on" and not settings_on(base):
            raise KeepworthError(
                f"there is no arm {arm!r}: {base} has no settings that turn its mechanism on.",
                f"Use {base}: its usual settings are those.",
            )
    for order in orders.split(","):
        if order not in ORDERS:
            raise UnknownName("order", order, ORDERS)
    if agent.startswith(MODEL):
        _scoring(agent.removeprefix(MODEL))
    elif agent not in AGENTS:
        raise UnknownName("agent", agent, (*AGENTS, f"{MODEL}NAME"))
    if split not in SPLITS:
        raise UnknownName("split", split, SPLITS)
    if method and method not in chosen:
        raise UnknownName("arm", method, chosen, "--arms")
    method = compared_method(chosen, method)
    settings = _settings(tuned, chosen)
    aim = planned(names, chosen, seeds, method=method)
    if aim is not None:
        console.print(aim.text, highlight=False)
    out.mkdir(parents=True, exist_ok=True)
    plan: dict[str, Any] = {
        "streams": names,
        "arms": chosen,
        "orders": orders.split(","),
        "split": split,
        "length": length,
        "agent": agent,
        "settings": settings,
        "method": method,
        "power": None if aim is None else asdict(aim),
    }
    note = out / "plan.json"
    fixed = ("arms", "split", "length", "agent", "settings")
    if note.exists():
        before = json.loads(note.read_text())
        changed = [key for key in fixed if before.get(key) != plan[key]]
        if changed:
            raise KeepworthError(
                f"{out} holds a matrix with other {', '.join(changed)}.", "Give another folder as --out, or remove it."
            )
    note.write_text(json.dumps(plan, indent=1) + "\n")
    jobs: list[Job] = [(name, order, seed) for seed in range(seeds) for name in names for order in plan["orders"]]

    def advance(done: int, total: int) -> None:
        progress.update(bar, completed=done)
        if not console.is_terminal:
            say(f"{done} of {total} streams are done.", error=True)

    with (
        Progress(console=console, disable=not console.is_terminal) as progress,
        stopping("The same command continues with what is missing."),
    ):
        bar = progress.add_task("streams", total=len(jobs))
        rows = run_matrix(
            jobs,
            partial(
                run_job,
                arms=tuple(chosen),
                split=split,
                length=length,
                settings=settings,
                data=data,
                agent=agent,
            ),
            out / "rows.jsonl",
            workers=workers,
            progress=advance,
        )
    results = Results(rows)
    summary = {"plan": plan, "seeds": seeds, "table": table(results), "claims": claims(results, method)}
    (out / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    page = write_stream_page(out, summary, results)
    if as_json:
        say_json(summary, indent=1)
        return
    print_summary(console, summary)
    console.print(f"The page: {page}", highlight=False)
    console.print("Beside it: summary.json, rows.jsonl", highlight=False)


def _list_streams(as_json: bool) -> None:
    """Every stream with what it is, by kind; a line each."""
    from keepworth.environments.streams import KIND_NAMES, missing, worlds
    from keepworth.registry import methods

    declared, made = methods("world"), worlds()
    kept = [(kind, [(name, missing(name)) for name in made if made[name].kind == kind]) for kind in KIND_NAMES]
    if as_json:
        for kind, streams in kept:
            for name, lacks in streams:
                needs = None if lacks is None else lacks.fix
                say_json({"name": name, "kind": kind, "about": declared[name].about, "needs": needs})
        return
    for kind, streams in kept:
        say(f"{KIND_NAMES[kind]}")
        say_terms(
            (name, f"{declared[name].about}{'' if lacks is None else f'. {lacks.fix}'}") for name, lacks in streams
        )
        say("")
    say_text("NAME~swap, NAME~event, NAME~drift or NAME~hidden=0.5 is that stream with chance in it.")


def _list_arms(as_json: bool) -> None:
    """Every method with what it is, those of papers first; a line each."""
    from keepworth.evaluation.stream_claims import CONTROL_ABOUT

    kinds = {"methods": _methods(), "controls": CONTROL_ABOUT}
    if as_json:
        for kind, named in kinds.items():
            for name, said in named.items():
                say_json({"name": name, "kind": kind, "about": said, "control": kind == "controls"})
        return
    for kind, named in kinds.items():
        say(kind)
        say_terms(named.items())
        say("")
    say("changes")
    say_terms(CHANGES.items())


def _methods() -> dict[str, str]:
    """The policies that keep cases, the default one, and each without its parts; with what they are."""
    from keepworth.memory.by_name import policies_of_cases
    from keepworth.memory.policy.default import NAME
    from keepworth.registry import method

    about: dict[str, str] = {}
    for name in (*policies_of_cases(), NAME):
        declared = method("policy", name)
        about[name] = f"{declared.about} ({declared.paper})" if declared.paper else declared.about
        about |= {f"{name}-without-{part}": f"{name} without {part}" for part in declared.parts}
    return about


Settings = dict[str, dict[str, dict[str, Any]]]
"""By kind of stream and by method."""


def _settings(tuned: Path | None, arms: list[str]) -> Settings:
    """Refused before anything runs where the file or one of its settings cannot be used."""
    import json

    from keepworth.environments.streams import KIND_NAMES
    from keepworth.episodes.errors import KeepworthError
    from keepworth.evaluation.stream_claims import CONTROLS

    if tuned is None:
        return {}
    wanted = 'Write {"KIND": {"METHOD": {"settings": {...}}}}: see benchmarks/streams/tuned.json.'
    try:
        settings = {
            kind: {name: dict(found["settings"]) for name, found in methods.items()}
            for kind, methods in json.loads(tuned.read_text()).items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise KeepworthError(f"{tuned} does not hold settings per method: {error!r}.", wanted) from error
    if unknown := [kind for kind in settings if kind not in KIND_NAMES]:
        raise KeepworthError(f"{tuned} has settings for {unknown[0]!r}, which is not a kind of stream.", wanted)
    for arm in arms:
        base = arm.partition("+")[0]
        for kind, chosen in settings.items():
            if base in CONTROLS:
                continue
            try:
                method_for(base, chosen, 0)
            except TypeError as error:
                raise KeepworthError(
                    f"{tuned} has a setting for {kind} that {base!r} does not take: {error}.", wanted
                ) from error
    return settings


def run_job(
    job: Job,
    *,
    arms: tuple[str, ...],
    split: str,
    length: int,
    settings: Settings,
    data: Path | None,
    agent: str = "usual",
) -> list[StreamRow]:
    """All arms on one stream, in this process."""
    from keepworth.agents.simulated import LinearAgent, TabularAgent
    from keepworth.environments.streams import opened, world
    from keepworth.evaluation.stream import row
    from keepworth.evaluation.stream_claims import CONTROLS
    from keepworth.memory.policy.hashed_words import HashedWords
    from keepworth.rollouts.stream import LEARNING, run_stream

    name, order, seed = job
    stream = opened(name, split=split, seed=seed, order=order, length=length or None, data=data)
    vectors: dict[str, Any] = {}
    tabular = agent == "tabular" or (agent == "usual" and stream.long_term)
    model = _scoring(agent.removeprefix(MODEL)) if agent.startswith(MODEL) else None
    policy = model or (TabularAgent() if tabular else LinearAgent())
    found = []
    for arm in arms:
        base, _, changed = arm.partition("+")
        control = base if base in CONTROLS else changed if changed in LEARNING else "learn"
        chosen = settings.get(world(name).kind, {}) if changed != "published" else {}
        if changed == "on":
            chosen = {**chosen, base: {**chosen.get(base, {}), **settings_on(base)}}
        system = method_for("exprag" if base in CONTROLS else base, chosen, seed)
        # What it would have done with other memory is one more pass of a model for every task.
        regret = model is None
        run = run_stream(
            stream, system, policy, HashedWords(), seed=seed, control=control, cache=vectors, measure_regret=regret
        )
        found.append(row(name, order, seed, arm, run))
    return found


@cache
def _scoring(name: str) -> ScoringAgent:
    """Raises what `path_of` raises."""
    from keepworth.agents.simulated import ScoringAgent
    from keepworth.episodes.extras import require
    from keepworth.models.files import ModelKind, path_of
    from keepworth.models.inprocess import InProcessModel

    require("llm", "a model as the agent")
    return ScoringAgent(InProcessModel.load(path_of(name, kind=ModelKind.LANGUAGE), name=name))


def settings_on(name: str) -> dict[str, Any]:
    """Settings under which the mechanism of a method, or of a method without one of its parts, decides something."""
    from keepworth.registry import methods

    declared = methods("policy").get(name)
    return {} if declared is None else dict(declared.on)


def method_for(name: str, settings: dict[str, dict[str, Any]], seed: int) -> Policy:
    """A fresh method under its tuned settings; parts left out keep the tuned settings of the whole."""
    from keepworth.memory.by_name import seeded

    whole, _, part = name.partition("-without-")
    given = settings.get(whole, {})
    if part:
        given = {**given, "without": part}
    return seeded(whole, seed, **given)


def print_summary(console: Any, summary: dict[str, Any]) -> None:
    from keepworth.cli.tables import print_table
    from keepworth.evaluation.stream_page import tables_of, verdict

    console.print(verdict(summary), style="bold", highlight=False)
    for table in tables_of(summary):
        print_table(table, console)

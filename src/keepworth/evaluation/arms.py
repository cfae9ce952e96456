"""Arms of streams by name: the list of them, how each is made, and the comparison of several.

summary = compare_streams(["near-miss"], ["none", "memrl"], Path("runs/streams"), StreamConditions(), seeds=3)"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keepworth.base.errors import KeepworthError, UnknownName, require_known
from keepworth.base.json_values import parse, read_json
from keepworth.evaluation.stream import Job, Results, StreamRow, row, run_matrix, table
from keepworth.evaluation.stream_claims import CONTROLS, choose_method, claims, plan_power
from keepworth.evaluation.stream_page import write_stream_page
from keepworth.memory.by_name import DEFAULT, policies_of_cases, seeded
from keepworth.memory.choose.hashed_words import HashedWords
from keepworth.registry import method as method_of
from keepworth.registry import methods as methods_of
from keepworth.worlds.made_up import ORDERS, SPLITS
from keepworth.worlds.simulated import LinearAgent, TabularAgent
from keepworth.worlds.stream import LEARNING, run_stream
from keepworth.worlds.streams import KIND_NAMES, missing, open_stream, world

if TYPE_CHECKING:
    from keepworth.memory.choose.slots import Policy

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
ATTACK_ARMS = "none,exprag,exprag+rollback,memrl,memrl+rollback,reme,amemguard,mixture"


Settings = dict[str, dict[str, dict[str, Any]]]
"""Settings by kind of stream and by method."""


@dataclass(frozen=True, slots=True)
class StreamConditions:
    """How arms are run on streams.

    Attributes:
        length: Tasks of a stream; 0 for the stream's default.
        agent: One of `AGENTS`.
        settings: See `read_tuned`.
        data: The folder of a published set, or of several.
    """

    split: str = "dev"
    length: int = 0
    agent: str = "usual"
    settings: Settings = field(default_factory=dict)
    data: Path | None = None


def compare_streams(
    streams: Sequence[str],
    arms: Sequence[str],
    out: Path,
    conditions: StreamConditions,
    *,
    orders: Sequence[str] = ("random",),
    seeds: int = 3,
    workers: int = 1,
    method: str = "",
    announce: Callable[[str], None] = lambda text: None,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Runs every arm on every stream, in every order, with every seed, and compares them.

    Args:
        streams: The names of the streams.
        arms: The names of methods and controls.
        out: A folder for rows, summary and page. A second call with the same comparison continues it.
        conditions: What holds for all arms: split, length, data, agent and tuned settings.
        orders: The orders of the tasks, each of which is run.
        seeds: The number of seeds, from 0 on.
        workers: The number of processes; the rows do not depend on it.
        method: The arm that claims are made about; "" for the default method, or else the last that learns.
        announce: Receives the statistical power of the seeds, before anything runs.
        progress: Receives how many streams are done, and of how many.

    Returns:
        The content of `summary.json`.

    Raises:
        KeepworthError: A name is not known, something is missing, or the folder holds another comparison.
    """
    for name in streams:
        if (lacks := missing(name, conditions.data)) is not None:
            raise lacks
    for arm in arms:
        _check_arm(arm)
    for order in orders:
        require_known("order", order, ORDERS)
    require_known("agent", conditions.agent, AGENTS)
    require_known("split", conditions.split, SPLITS)
    if method and method not in arms:
        raise UnknownName("arm", method, arms, "--arms")
    method = choose_method(arms, method)
    power = plan_power(streams, arms, seeds, method=method)
    if power is not None:
        announce(power.text)
    fixed = asdict(conditions)
    del fixed["data"]
    plan = {
        "streams": list(streams),
        "arms": list(arms),
        "orders": list(orders),
        **fixed,
        "method": method,
        "power": None if power is None else asdict(power),
    }
    out.mkdir(parents=True, exist_ok=True)
    note = out / "plan.json"
    if note.exists():
        before = read_json(note, "Give another folder as --out, or remove it.")
        if changed := [key for key in ("arms", *fixed) if before.get(key) != plan[key]]:
            raise KeepworthError(
                f"{out} holds a matrix with other {', '.join(changed)}.", "Give another folder as --out, or remove it."
            )
    note.write_text(json.dumps(plan, indent=1) + "\n")
    jobs: list[Job] = [(name, order, seed) for seed in range(seeds) for name in streams for order in orders]
    run_one = partial(run_job, arms=tuple(arms), conditions=conditions)
    results = Results(run_matrix(jobs, run_one, out / "rows.jsonl", workers=workers, progress=progress))
    summary = {"plan": plan, "seeds": seeds, "table": table(results), "claims": claims(results, method)}
    (out / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    write_stream_page(out, summary, results)
    return summary


def _parts_of(arm: str) -> tuple[str, str, str]:
    """Splits an arm into its method, its settings ("", "published" or "on"), and its control."""
    base, *changes = arm.split("+")
    settings = changes.pop(0) if changes and changes[0] not in LEARNING else ""
    return base, settings, "+".join(changes)


def _check_arm(arm: str) -> None:
    """Raises KeepworthError where there is no such arm."""
    base, settings, control = _parts_of(arm)
    learning = describe_methods()
    if base not in learning and base in methods_of("policy"):
        raise KeepworthError(
            f"{base} cannot use a stream: it keeps no cases of its own, and a stream brings it none.",
            f"Leave it out; `keepworth methods show {base}` says where it was measured.",
        )
    if base not in (*learning, *CONTROLS):
        raise UnknownName("arm", arm, (*learning, *CONTROLS))
    changes = [f"+{change}" for change in (settings, control) if change]
    possible = set(changes) <= set(CHANGES) and (not control or control in LEARNING)
    if changes and (base in CONTROLS or not possible):
        raise KeepworthError(
            f"there is no arm {arm!r}: it is a method with one of {', '.join(CHANGES)}, or with settings and then a control.",
            "Controls such as `none` take no change. Write NAME+on+masked, say.",
        )
    if settings == "on" and not settings_on(base):
        raise KeepworthError(
            f"there is no arm {arm!r}: {base} has no settings that turn its mechanism on.",
            f"Use {base}: its usual settings are those.",
        )
    if control == "masked" and not getattr(method_for(base, {}, 0).valuer, "learns", True):
        raise KeepworthError(
            f"there is no arm {arm!r}: {base} learns no values that could be hidden, so it would be {base} again.",
            f"Compare {base} with exprag, or with {base}+shuffled.",
        )


@cache
def describe_methods() -> dict[str, str]:
    """Returns descriptions of the policies that keep cases, of the default policy, and of each without one of its parts."""
    about: dict[str, str] = {}
    for name in (*policies_of_cases(), DEFAULT):
        declared = method_of("policy", name)
        about[name] = f"{declared.about} ({declared.paper})" if declared.paper else declared.about
        about |= {f"{name}-without-{part}": f"{name} without {part}" for part in declared.parts}
    return about


def read_tuned(tuned: Path | None, arms: Sequence[str]) -> Settings:
    """Reads a file of settings, {} for None. Raises KeepworthError where the file or one of its settings cannot be used."""
    if tuned is None:
        return {}
    wanted = 'Write {"KIND": {"METHOD": {"settings": {...}}}}: see benchmarks/streams/tuned.json.'
    try:
        settings = {
            kind: {name: dict(method["settings"]) for name, method in methods.items()}
            for kind, methods in parse(tuned.read_text(encoding="utf-8")).items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise KeepworthError(f"{tuned} does not hold settings per method: {error!r}.", wanted) from error
    if unknown := [kind for kind in settings if kind not in KIND_NAMES]:
        raise KeepworthError(f"{tuned} has settings for {unknown[0]!r}, which is not a kind of stream.", wanted)
    for arm in arms:
        base = arm.partition("+")[0]
        for kind, chosen in settings.items():
            if base not in describe_methods():  # controls; `compare_streams` refuses others
                continue
            try:
                method_for(base, chosen, 0)
            except TypeError as error:
                raise KeepworthError(
                    f"{tuned} has a setting for {kind} that {base!r} does not take: {error}.", wanted
                ) from error
    return settings


def run_job(job: Job, arms: Sequence[str], conditions: StreamConditions) -> list[StreamRow]:
    """Runs all arms on one stream, in this process.

    Args:
        job: The stream, the order of its tasks, and the seed.
        arms: The names of methods and controls.
        conditions: What holds for all arms: split, length, data, agent and tuned settings.
    """
    name, order, seed = job
    length, data = conditions.length or None, conditions.data
    stream = open_stream(name, split=conditions.split, seed=seed, order=order, length=length, data=data)
    tabular = conditions.agent == "tabular" or (conditions.agent == "usual" and stream.long_term)
    agent = TabularAgent() if tabular else LinearAgent()
    results = []
    for arm in arms:
        base, settings, removed = _parts_of(arm)
        control = base if base in CONTROLS else removed or "learn"
        chosen = conditions.settings.get(world(name).kind, {}) if settings != "published" else {}
        if settings == "on":
            chosen = {**chosen, base: {**chosen.get(base, {}), **settings_on(base)}}
        policy = method_for("exprag" if base in CONTROLS else base, chosen, seed)
        run = run_stream(stream, policy, agent, HashedWords(), seed=seed, control=control)
        results.append(row(name, order, seed, arm, run))
    return results


def settings_on(name: str) -> dict[str, Any]:
    """Returns settings under which the mechanism of a method, or of a method without one of its parts, has an effect."""
    declared = methods_of("policy").get(name)
    return {} if declared is None else dict(declared.on)


def method_for(name: str, settings: dict[str, dict[str, Any]], seed: int) -> Policy:
    """Returns a new method with its tuned settings. A method without a part keeps the settings of the whole.

    Args:
        name: The name of a policy, or `NAME-without-PART`.
        settings: The tuned settings of each policy, by its name.
        seed: The seed of the method's own draws.
    """
    whole, _, part = name.partition("-without-")
    own_settings = settings.get(whole, {})
    if part:
        own_settings = {**own_settings, "without": part}
    return seeded(whole, seed, **own_settings)

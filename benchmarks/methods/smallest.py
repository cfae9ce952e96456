"""Runs every evidence command at its smallest size, and asks for a score above 0 with its control below.

    python -m benchmarks.methods.smallest [NAME ...] [--minutes 10] [--again] [--list]

What passed is not run again until the code changes, so that the whole can be run in pieces: after `--minutes` no further command
is begun, and what is left is named with the time that each took here. The exit status is 1 where a command failed, 2 where some
are left. `LEFT_OUT` names the commands that cannot be run at a small size, and why.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.methods.judge import records
from benchmarks.methods.recipes import ARMS
from benchmarks.methods.study import SMALLEST
from benchmarks.methods.write import ASIDE
from benchmarks.record import arguments
from benchmarks.tables import ROOT
from keepworth.base.line_file import read_lines
from keepworth.evaluation.verdicts import STALE
from keepworth.worlds.benchmark import benchmarks
from keepworth.worlds.streams import missing, worlds

DONE = ASIDE / "smallest.jsonl"
LONGEST = 900
"""Seconds after which a command is stopped and has failed."""
Scores = Callable[[Path], Iterable[tuple[str, float, float | None]]]
"""Reads a folder: (what was measured, its score, that of its control or None where it has none)."""


@dataclass(frozen=True)
class Smallest:
    """A command at its smallest size.

    Attributes:
        name: What it is called here.
        words: Of the command, in which {out} is the folder that it writes to; several commands are divided by ";".
        scores: What must be above 0, and above its control.
        of: The methods whose evidence the command measures.
        seconds: How long it took on two cores at a load of about 10.
    """

    name: str
    words: str
    scores: Scores
    of: tuple[str, ...]
    seconds: int
    needs: str = ""
    """A package without which it is not run."""


def arms(score: str, control: str = "") -> Scores:
    """The named arms of every record of a folder."""

    def read(folder: Path) -> Iterable[tuple[str, float, float | None]]:
        for file in sorted(folder.glob("*.json")):
            record = json.loads(file.read_text(encoding="utf-8"))
            means = {arm["name"]: float(arm["mean"]) for arm in record.get("arms", ())}
            if means:
                yield record["name"], means[score], means[control] if control else None

    return read


def trained(folder: Path) -> Iterable[tuple[str, float, float | None]]:
    """The control of an objective that was trained here."""
    for file in sorted(folder.glob("*.json")):
        record = json.loads(file.read_text(encoding="utf-8"))
        yield record["name"], float(record["arms"][-1]["mean"]), None


def answers(folder: Path) -> Iterable[tuple[str, float, float | None]]:
    """Of a benchmark the key and chance, and of marked evidence what a search by words finds beside none."""
    yield from arms("answer: the key", "answer: chance")(folder)
    for file in sorted(folder.glob("*.json")):
        means = {arm["name"]: float(arm["mean"]) for arm in json.loads(file.read_text(encoding="utf-8"))["arms"]}
        if "evidence shown: bm25" in means:
            yield f"{file.stem}, evidence", means["evidence shown: bm25"], means["evidence shown: none"]


def cells(field: str) -> Scores:
    """The mean of a field over the cells of a command of control."""

    def read(folder: Path) -> Iterable[tuple[str, float, float | None]]:
        for file in folder.glob("cells.json"):
            values = [cell[field] for cell in json.loads(file.read_text(encoding="utf-8"))["cells"]]
            yield field, sum(values) / len(values), None

    return read


def lengths(folder: Path) -> Iterable[tuple[str, float, float | None]]:
    """How many evaluations each cell of a command of control has."""
    for file in folder.glob("cells.json"):
        for cell in json.loads(file.read_text(encoding="utf-8"))["cells"]:
            yield cell["arm"], float(len(cell["means"])), None


def areas(folder: Path) -> Iterable[tuple[str, float, float | None]]:
    """The rewards of each arm of the objectives' toy."""
    for setting in json.loads((folder / "toy.json").read_text(encoding="utf-8"))["settings"].values():
        for arm in setting["arms"]:
            yield arm["name"], sum(arm["area"]) / len(arm["area"]), None


STUDIES = {
    "ama": ("allocator on all", "allocator, rewards permuted on all"),
    "context_evolve": ("oracle", "chance"),
    "cues": ("the world's own tasks", ""),
    "difficulty_space": ("progressive", "rewards of other answers"),
    "exploitation": ("rare: best", "rare: an arm that was not tried"),
    "igl_nav": ("map memory, forgotten: SPL", ""),
    "macro_hft": ("who knows the future", "chance"),
    "mind_palace": ("whoever knows the evidence (budget 2)", ""),
    "starling": ("overlap 1, 20 episodes", "no pre-training, 20 episodes"),
    "shielded_units": (
        "steps that break nothing, learning: units",
        "steps that break nothing, learning: no shield",
    ),
    "bresa": ("no fall: reflex, eps 0.3", "no fall: slow, eps 0.3"),
    "hybrid_regions": ("oracle", "upright"),
    "mini_diffuser": ("loss: k = 16", ""),
    "oer": ("all logs", "nothing kept"),
    "continual_navigation": ("success: joint training", "success: chance"),
    "robot_loops": ("success: guide", "success: chance"),
    "skillmimic_v2": ("own: steered by clean paths", "own: chance"),
    "step_mix": ("value at the end: best policy", "value at the end: baseline"),
    "vilomem": ("oracle", "answers of other tasks"),
}
"""Of each study the arm whose score is above 0, and its control, "" where a small size does not tell them apart."""
NEEDS = {"cues": "textworld_express"} | dict.fromkeys(
    ("continual_navigation", "robot_loops", "skillmimic_v2"), "gymnasium"
)
LEFT_OUT = {
    "domains": "asks runs of 135M parameters that were trained for minutes",
    "pass_at_k": "asks runs of 135M parameters that were trained for minutes",
    "self_prm": "asks a run of 135M parameters that was trained for minutes",
    "retention": "trains 135M parameters",
    "sort": "trains 135M parameters",
    "three_settings": "answers with 135M parameters",
    "tulving": "sums up an evaluation with 135M parameters",
    "persistbench": "needs a package that is not installed everywhere",
    "game_on": "has no smaller size",
    "written_or_neural": "has no smaller size",
    "openclaw_rl": "trains 135M parameters for sixteen updates",
    "model": "needs a served model",
    "rules": "prints its table and leaves no arms",
    "statements": "reads published sets from a folder",
}
"""Methods whose command cannot be run at a small size, and why not."""
STREAM = "near-miss"
POLICIES = (
    "none",
    "random",
    "oracle",
    "exprag",
    "dead-ends-without-cap",
    "nearest-mean",
    "memrl+on",
    "memrl+on+masked",
)


def commands() -> list[Smallest]:
    """Every evidence command, with the methods whose records it measures."""
    kinds: dict[str, list[str]] = {}
    for declared, _, record in records():
        if record["verdict"] != STALE:
            module = next(iter(part for part in record["command"].split() if part.startswith("benchmarks.")), "")
            kinds.setdefault(f"{declared.kind}: {module}", []).append(declared.name)
    played = [name for name in kinds["world: benchmarks.methods.worlds"] if missing(name, None) is None]
    shipped = [name for name in kinds["benchmark: benchmarks.methods.headroom"] if benchmarks()[name].shipped]
    toys = [
        name for kind, names in kinds.items() if kind.startswith("objective: benchmarks.objectives") for name in names
    ]
    tabled = [name for kind, names in kinds.items() if kind.endswith(": benchmarks.streams.memories") for name in names]
    modules = [name for kind, names in kinds.items() if kind.endswith(": benchmarks.control.ladder") for name in names]
    bonuses = kinds["control_agent: benchmarks.control.bonuses"]
    predictions = kinds["control_agent: benchmarks.control.predictions"]
    learners = kinds["control_agent: benchmarks.control.off_policy"]
    logged = kinds.get("control_agent: benchmarks.control.from_logs", [])
    stacked = kinds.get("control_agent: benchmarks.control.staq", [])
    late = kinds.get("control_agent: benchmarks.control.late_rewards", [])
    sequences = kinds.get("control_agent: benchmarks.control.sequences", [])
    pretrained = kinds.get("control_agent: benchmarks.control.pretraining", [])
    drawn = kinds.get("control_agent: benchmarks.control.bisimulation", [])
    flickering = kinds.get("control_agent: benchmarks.control.flicker", [])
    poor = kinds.get("control_agent: benchmarks.control.poor_logs", [])
    demonstrated = kinds.get("control_agent: benchmarks.control.few_demonstrations", [])
    retrieved = kinds.get("control_agent: benchmarks.control.dark_rooms", [])
    shared = kinds.get("control_agent: benchmarks.control.amago", [])
    imagining = kinds.get("control_agent: benchmarks.control.imagination", [])
    run = "python -m benchmarks"
    small = "--smallest --out {out}"
    stream = (
        f"keepworth eval stream --streams {STREAM} --arms {','.join(POLICIES)} --seeds 3 --split held-out --length 20"
    )
    made = [
        Smallest("worlds", f"{run}.methods.worlds {' '.join(played)} {small}", arms("scripted optimum", "chance"),
                 tuple(played), 60),
        Smallest("headroom", f"{run}.methods.headroom {' '.join(shipped)} {small}", answers, tuple(shipped), 80),
        Smallest("streams", f"{stream} --tuned benchmarks/streams/tuned.json --out {{out}}/rows; "
                 f"{run}.streams.memories {{out}}/rows --json {{out}}/table --evidence memrl --out {{out}}",
                 arms(f"oracle on {STREAM}", f"none on {STREAM}"), tuple(tabled), 30),
        Smallest("toy", f"{run}.objectives.run --only sparse --seeds 1 --processes 1 --output {{out}}/toy.json",
                 areas, tuple(toys), 95),
        Smallest("objectives", f"{run}.methods.objectives gspo {small}", trained, (), 30),
        Smallest("ladder", f"{run}.control.ladder --memories gru mlp --rungs 4 --seeds 0 --seconds 4 --json {{out}}/cells.json",
                 cells("success"), (), 20),
        Smallest("modules", f"{run}.methods.memories --out {{out}}", arms("gru at xi=8", "mlp at xi=8"), tuple(modules), 10),
        Smallest("predictions", f"{run}.control.predictions --worlds keepworth/Cue8-v0 --arms none latent --seeds 0 --steps 2048 "
                 "--json {out}/cells.json", cells("whole"), tuple(predictions), 20, "popgym"),
        Smallest("off_policy", f"{run}.control.off_policy --steps 100 --seeds 0 --arms RSAC RTD3 RDPG --json {{out}}/cells.json",
                 cells("steps"), tuple(learners), 20),
        Smallest("from_logs", f"{run}.control.from_logs --steps 100 --updates 20 --seeds 1 --arms WSRL "
                 "--json {out}/cells.json", lengths, tuple(logged), 60),
        Smallest("staq", f"{run}.control.staq --steps 400 --seeds 1 --arms StaQ --json {{out}}/cells.json", cells("score"),
                 tuple(stacked), 20),
        Smallest("late_rewards", f"{run}.control.late_rewards --steps 200 --seeds 1 --arms LaRe --json {{out}}/cells.json",
                 cells("steps"), tuple(late), 20),
        Smallest("sequences", f"{run}.control.sequences --steps 200 --seeds 1 --json {{out}}/cells.json",
                 cells("updates"), tuple(sequences), 20),
        Smallest("pretraining", f"{run}.control.pretraining --steps 2048 --seeds 1 --arms demonstrator --json {{out}}/cells.json",
                 cells("success"), tuple(pretrained), 20, "minigrid"),
        Smallest("bisimulation", f"{run}.control.bisimulation --updates 20 --seeds 1 --arms bisimulation "
                 "--json {out}/cells.json",
                 cells("score"), tuple(drawn), 20),
        Smallest("flicker", f"{run}.control.flicker --updates 20 --seeds 1 --arms rule --json {{out}}/cells.json",
                 cells("score"), tuple(flickering), 20),
        Smallest("poor_logs", f"{run}.control.poor_logs --updates 20 --seeds 1 --kinds few --arms rule --json {{out}}/cells.json",
                 cells("score"), tuple(poor), 20),
        Smallest("few_demonstrations", f"{run}.control.few_demonstrations --steps 2048 --seeds 1 "
                 "--worlds MiniGrid-MultiRoom-N2-S4-v0 --arms demonstrator --json {out}/cells.json", cells("success"),
                 tuple(demonstrated), 20, "minigrid"),
        Smallest("dark_rooms", f"{run}.control.dark_rooms --updates 5 --seeds 1 --arms RA-DT --json {{out}}/cells.json",
                 cells("score"), tuple(retrieved), 40),
        Smallest("amago", f"{run}.control.amago --steps 800 --seeds 1 --arms AMAGO --json {{out}}/cells.json",
                 cells("steps"), tuple(shared), 40),
        Smallest("imagination", f"{run}.control.imagination --steps 200 --seeds 1 --worlds distractors --arms RePo InfoPower "
                 "--json {out}/cells.json", cells("score"), tuple(imagining), 30),
        Smallest("bonuses", f"{run}.methods.agents --out {{out}}", agents, tuple(bonuses), 10),
        Smallest("mmr", f"{run}.methods.stages {small}", arms("oracle"), ("mmr",), 60),
    ]  # fmt: skip
    made += [
        Smallest(f"recipe {name}", f"{run}.methods.recipes {name} {small}", arms("before any reward"), (name,), 90)
        for name in ARMS
    ]
    made += [
        Smallest(
            f"study {name}",
            f"{run}.methods.study {name} {small}",
            arms(*STUDIES[name]),
            (name,),
            20,
            NEEDS.get(name, ""),
        )
        for name in SMALLEST
    ]
    return made


def agents(folder: Path) -> Iterable[tuple[str, float, float | None]]:
    """Of each agent of control its arms' mean."""
    for file in sorted(folder.glob("*.json")):
        record = json.loads(file.read_text(encoding="utf-8"))
        yield record["name"], float(record["arms"][-1]["mean"]), None


def uncovered() -> list[str]:
    """Methods with evidence that no command here measures and that are not left out."""
    covered = {name for command in commands() for name in command.of} | {*LEFT_OUT}
    return [
        declared.name
        for declared, _, record in records()
        if record["verdict"] != STALE
        and record["arms"]
        and declared.name not in covered
        and not needs_data(declared.name)
    ]


def needs_data(name: str) -> bool:
    """Return whether a world or a benchmark is made of a published set that this project does not ship."""
    return (name in benchmarks() and not benchmarks()[name].shipped) or (
        name in worlds() and missing(name, None) is not None
    )


def check(command: Smallest) -> str:
    """Runs a command; "" where its scores are right, or else what is wrong."""
    with tempfile.TemporaryDirectory() as folder:
        for words in command.words.format(out=folder).split("; "):
            program, *rest = words.split()
            call = [sys.executable, *rest] if program == "python" else [sys.executable, "-m", program, *rest]
            try:
                ran = subprocess.run(call, cwd=ROOT, capture_output=True, text=True, timeout=LONGEST)
            except subprocess.TimeoutExpired:
                return f"{words} took more than {LONGEST} s"
            if ran.returncode:
                return f"{words} ended with {ran.returncode}: {' '.join(ran.stderr.split()[-40:])}"
        try:
            scores = list(command.scores(Path(folder)))
        except KeyError as error:
            return f"it left no arm {error}"
    wrong = [f"{name} scores {score:.3f}" for name, score, _ in scores if not score > 0.0]
    wrong += [
        f"{name} scores {score:.3f}, its control {control:.3f}"
        for name, score, control in scores
        if control is not None and not score > control
    ]
    return "; ".join(wrong) if scores else "it left no score"


def code() -> str:
    """A digest of the code that the commands are made of."""
    files = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "src", "benchmarks"], cwd=ROOT, capture_output=True, text=True
    ).stdout.split()
    digest = hashlib.sha256()
    for name in sorted(files):
        path = ROOT / name
        if path.suffix == ".py" and path.is_file():
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def lacks(command: Smallest) -> bool:
    """Return whether a package that a command needs is not installed."""
    return bool(command.needs) and find_spec(command.needs) is None


def left(done: dict[str, Any], every: Sequence[Smallest]) -> list[Smallest]:
    """The commands that have not passed and could be run here."""
    return [command for command in every if command.name not in done and not lacks(command)]


def main() -> None:
    parser = arguments(__doc__, json=False)
    parser.add_argument("names", nargs="*", help="of the commands, all where none is named")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="after which no further command is begun")
    parser.add_argument("--again", action="store_true", help="also what passed before")
    parser.add_argument("--list", action="store_true", help="only say what is left")
    options = parser.parse_args()
    every = commands()
    unknown = {*options.names} - {command.name for command in every}
    if unknown:
        raise SystemExit(f"No command is called {', '.join(unknown)}. There are: {', '.join(of.name for of in every)}.")
    now, began, failed = code(), time.monotonic(), False
    DONE.parent.mkdir(parents=True, exist_ok=True)
    rows = list(read_lines(DONE)) if DONE.exists() and not options.again else []
    done = {row["name"]: row for row in rows if row["code"] == now}
    wanted = [command for command in every if command.name in options.names or not options.names]
    for command in left(done, wanted):
        if options.list or time.monotonic() - began > 60 * options.minutes:
            break
        started = time.monotonic()
        wrong = check(command)
        seconds = time.monotonic() - started
        print(f"{command.name}: {'FAILED: ' + wrong if wrong else 'passed'} ({seconds:.0f} s)", flush=True)
        failed = failed or bool(wrong)
        if not wrong:
            row = {"name": command.name, "code": now, "seconds": round(seconds)}
            done[command.name] = row
            with DONE.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
    remaining, absent = left(done, wanted), [command for command in wanted if lacks(command)]
    passed = len(wanted) - len(remaining) - len(absent)
    print(f"{passed} of {len(wanted)} commands passed; {len(LEFT_OUT)} methods are left out: see LEFT_OUT.")
    if absent:
        print("not run: " + ", ".join(f"{command.name} (needs {command.needs})" for command in absent))
    if remaining:
        print("left: " + ", ".join(f"{command.name} ({command.seconds} s)" for command in remaining))
    raise SystemExit(1 if failed else 2 if remaining else 0)


if __name__ == "__main__":
    main()

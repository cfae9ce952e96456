"""`keepworth control`: small networks with memory, in worlds that hide their state."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from keepworth.base.errors import KeepworthError
from keepworth.base.extras import require
from keepworth.cli.command import App, argument, option
from keepworth.cli.output import say, say_json, stopping

if TYPE_CHECKING:
    from keepworth.control.settings import OffPolicySettings, PpoSettings

app = App(help="Small networks with memory, in worlds that hide their state.")


@app.command(
    examples="""
    keepworth control train --memory ffm --world popgym-RepeatPreviousEasy-v0
    keepworth control train --memory gru --world CartPole-v1 --steps 100000 --folder runs/control/cartpole
    keepworth control train --memory ffm --set traces=64 --set contexts=8
    keepworth control train --learner sac --memory gru --world Pendulum-v1 --steps 20000
    """
)
def train(
    memory: Annotated[str, option("--memory NAME", "A memory: see keepworth methods --kind memory_module.")] = "ffm",
    world: Annotated[str, option("--world ID", "A Gymnasium id.")] = "popgym-RepeatPreviousEasy-v0",
    steps: Annotated[int, option("--steps N", "Steps of all worlds together.", min=1)] = 400_000,
    learner: Annotated[
        str,
        option("--learner NAME", "ppo; or off-policy, with a replay: sac, or td3 or ddpg where actions are numbers."),
    ] = "ppo",
    seed: Annotated[int, option("--seed N", "Of the network, the worlds and what is drawn.", min=0)] = 0,
    envs: Annotated[
        int | None, option("--envs N", "Worlds that are stepped together: 16 with ppo, else 1, by default.", min=1)
    ] = None,
    folder: Annotated[Path | None, option("--folder FOLDER", "Where the run stands, and goes on.")] = None,
    assign: Annotated[
        list[str] | None, option("--set NAME=VALUE", "A setting of learner or memory: rollout=64, ...")
    ] = None,
    threads: Annotated[int, option("--threads N", "Of PyTorch.", min=1)] = 1,
    as_json: Annotated[bool, option("--json", "Print a line of JSON per update.")] = False,
) -> None:
    """Train a network with a memory by recurrent PPO or an off-policy learner, and show its curve."""
    require("control", "keepworth control train", "torch", "gymnasium")
    import torch

    from keepworth.control.published import find_published, in_words
    from keepworth.control.run import run as train_in
    from keepworth.training.watch.progress import duration, sparkline

    settings = _settings(learner, memory, world, steps, seed, envs, assign or [])
    folder = folder or Path("runs") / "control" / _folder_name(learner, world, memory, seed)
    torch.set_num_threads(threads)
    rows: list[dict[str, Any]] = []
    reference = find_published(world)
    if not as_json:
        say(f"{memory} in {world}, seed {seed}")
    with stopping(f"The same command goes on from the last checkpoint in {folder}; one is written every 15 s."):
        for update in train_in(settings, folder):
            row: dict[str, Any] = dict(update)
            rows.append(row)
            if as_json:
                say_json(row)
            elif len(rows) % max(1, settings.updates // 20) == 0 or len(rows) == settings.updates:
                speed = row["steps"] / max(row["seconds"], 1e-9)
                left = duration(max(0, settings.steps - row["steps"]) / speed) if speed else "?"
                say(
                    f"{row['steps']:>10,} of {settings.steps:,} steps  return {_number(row['recent'])}  {speed:,.0f} steps/s  "
                    f"left {left}"
                )
    if as_json:
        return
    say(sparkline([row["recent"] for row in rows if row["recent"] is not None], width=60))
    best = max((row["return"] for row in rows if row["return"] is not None), default=None)
    say(f"best {_number(best)}, last hundred episodes {_number(rows[-1]['recent'])}, {rows[-1]['steps']:,} steps")
    if reference:
        say(f"{in_words(reference)} Yours after {rows[-1]['steps']:,}: {_number(best)}.")
    say(f"in {folder}: curve.json, checkpoint.pt")


@app.command(
    examples="""
    keepworth control table benchmarks/control/table
    keepworth control table runs/control --json
    """
)
def table(
    folder: Annotated[Path, argument("", "Folder of runs, or a file that benchmarks.control.table wrote.")] = Path(
        "runs/control"
    ),
    as_json: Annotated[bool, option("--json", "Print everything as JSON.")] = False,
) -> None:
    """Print worlds by memories: the best mean return of each, over seeds, with published numbers beside."""
    import json

    from keepworth.control.table import read_cells, summarise

    summary = json.loads(folder.read_text(encoding="utf-8")) if folder.is_file() else summarise(read_cells(folder))
    if not summary["rows"]:
        raise KeepworthError(
            f"{folder} holds no finished run.", "keepworth control train --folder FOLDER/NAME makes one."
        )
    if as_json:
        say_json(summary)
        return
    memories = sorted({row["memory"] for row in summary["rows"]})
    say("\t".join(("world", "n", "steps", *memories, "GRU, published", "best, published")))
    for world in sorted({row["world"] for row in summary["rows"]}):
        cells = {row["memory"]: row for row in summary["rows"] if row["world"] == world}
        reference = summary["published"].get(world)
        columns = (
            [f"{reference['gru']:.3f}", f"{reference['best']:.3f} ({reference['whose']})"] if reference else ["", ""]
        )
        seeds = "/".join(sorted({str(row["n"]) for row in cells.values()}))
        steps = "/".join(sorted({f"{count:,}" for row in cells.values() for count in row["steps"]}))
        scores = [f"{cells[memory]['best']:.3f}" if memory in cells else "" for memory in memories]
        say("\t".join((world, seeds, steps, *scores, *columns)))
    if summary["mean_rank"]:
        ranks = (str(summary["mean_rank"].get(memory, "")) for memory in memories)
        say("\t".join(("mean rank", "", "", *ranks, "", "")))


def _folder_name(learner: str, world: str, memory: str, seed: int) -> str:
    names = [world.replace("/", "-"), *([] if learner == "ppo" else [learner]), memory, str(seed)]
    return "-".join(names)


def _settings(
    learner: str, memory: str, world: str, steps: int, seed: int, envs: int | None, assign: list[str]
) -> PpoSettings | OffPolicySettings:
    """Makes the learner's settings from the command line. A name of `--set` is one of the learner's, else one of the memory's."""
    from inspect import signature

    from keepworth.base.errors import require_known
    from keepworth.control.settings import LEARNERS, OffPolicySettings, PpoSettings
    from keepworth.registry import method
    from keepworth.worlds.benchmark import read_settings

    require_known("learner", learner, ["ppo", *LEARNERS])
    chosen: dict[str, Any] = {"memory": memory, "world": world, "steps": steps, "seed": seed}
    if envs is not None:
        chosen["envs"] = envs
    all_settings = signature(PpoSettings if learner == "ppo" else OffPolicySettings).parameters
    apart = (*chosen, "envs", "learner", "memory_settings", "shares", "clone_source")  # logs are given in Python
    accepted = {name: of for name, of in all_settings.items() if name not in apart}
    parameters = signature(method("memory_module", memory).make).parameters
    of_memory = {name: of for name, of in parameters.items() if of.kind is of.KEYWORD_ONLY}
    values = read_settings({**accepted, **of_memory}, assign, f"keepworth control with memory {memory!r}")
    chosen["memory_settings"] = {name: values.pop(name) for name in set(values) - set(accepted)}
    if learner != "ppo":
        return OffPolicySettings(**{**chosen, "learner": learner, **values})
    for name in ("bonus", "predict"):
        if f"{name}_weight" in values and values.get(name, "none") == "none":
            raise KeepworthError(f"{name}_weight has no effect without {name}.", f"Set {name} too, or leave it out.")
    # With fewer worlds than minibatches an update is not divided.
    chosen["minibatches"] = min(4, envs or PpoSettings.envs)
    return PpoSettings(**{**chosen, **values})


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"

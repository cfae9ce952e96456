"""`keepworth control`: small networks with memory, in worlds that hide their state."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from keepworth.base.errors import KeepworthError
from keepworth.base.extras import require
from keepworth.base.json_values import read_json
from keepworth.cli.command import App, argument, option
from keepworth.cli.output import say, say_json, stopping

if TYPE_CHECKING:
    from keepworth.control.logs import MinariLogs
    from keepworth.control.settings import OffPolicySettings, PpoSettings

app = App(help="Small networks with memory, in worlds that hide their state.")


@app.command(
    examples="""
    keepworth control train --memory ffm --world popgym-RepeatPreviousEasy-v0
    keepworth control train --memory gru --world CartPole-v1 --steps 100000 --folder runs/control/cartpole
    keepworth control train --memory ffm --set traces=64 --set contexts=8
    keepworth control train --learner sac --memory gru --world Pendulum-v1 --steps 20000
    keepworth control train --logs logs/pendulum --learner iql --memory gru --updates 20000
    keepworth control train --logs logs/pendulum --learner sac --steps 20000 --set warmup=500 --share play=1
    """
)
def train(
    memory: Annotated[str, option("--memory NAME", "A memory: see keepworth methods --kind memory_module.")] = "ffm",
    world: Annotated[
        str | None,
        option("--world ID", "A Gymnasium id: popgym-RepeatPreviousEasy-v0 by default, with --logs theirs."),
    ] = None,
    steps: Annotated[
        int | None, option("--steps N", "Steps of all worlds together: 400,000 by default, with --logs none.", min=0)
    ] = None,
    learner: Annotated[
        str | None,
        option(
            "--learner NAME",
            "ppo, the default; or off-policy, with a replay: sac, staq for choices, td3 or ddpg for numbers; for --logs iql, the "
            "default there, or bc.",
        ),
    ] = None,
    logs: Annotated[
        list[Path] | None, option("--logs FOLDER", "Learn from logs in Minari's format, before the world is played.")
    ] = None,
    updates: Annotated[int | None, option("--updates N", "From --logs: 10,000 by default.", min=0)] = None,
    share: Annotated[
        list[str] | None,
        option("--share NAME=SHARE", "Of each batch, by source: play, and the names of the folders of --logs."),
    ] = None,
    seed: Annotated[int, option("--seed N", "Of the network, the worlds and what is drawn.", min=0)] = 0,
    envs: Annotated[
        int | None, option("--envs N", "Worlds that are stepped together: 16 with ppo, else 1, by default.", min=1)
    ] = None,
    fill: Annotated[
        bool, option("--fill", "Fill in rewards and actions that the logs lack, as learned from those that they have.")
    ] = False,
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

    from keepworth.control.labels import fill_in
    from keepworth.control.logs import SpacesOf
    from keepworth.control.published import find_published, in_words
    from keepworth.control.run import run as train_in
    from keepworth.training.watch.progress import duration, sparkline

    sources = _logs(logs or [])
    opened = next(iter(sources.values()), None)
    learner = learner or ("ppo" if opened is None else "iql")
    if opened is None:
        if updates is not None or share or fill:
            raise KeepworthError(
                "--updates, --share and --fill have no effect without --logs.", "Give --logs FOLDER too."
            )
        world, steps = world or "popgym-RepeatPreviousEasy-v0", 400_000 if steps is None else steps
    else:
        steps, updates = steps or 0, 10_000 if updates is None else updates
        world = world or (opened.world if steps else "")
    if steps and not world:
        raise KeepworthError(
            f"--steps {steps} plays a world, and the logs do not name theirs.",
            "Give --world ID too, or leave --steps out.",
        )
    settings = _settings(
        learner, memory, world or SpacesOf.__qualname__, steps, seed, envs, assign or [], updates, _shares(share or [])
    )
    alone = None if world or opened is None else SpacesOf(opened.observation_space, opened.action_space)
    played = world or next(iter(sources), "")
    folder = folder or Path("runs") / "control" / _folder_name(learner, played, memory, seed)
    torch.set_num_threads(threads)
    rows: list[dict[str, Any]] = []
    reference = find_published(world or "")
    if not as_json:
        say(f"{memory} in {world}, seed {seed}" if world else f"{memory}, from logs alone, seed {seed}")
        for source, of in sources.items():
            say(f"logs {source}: {_summary(of)}")
    learned: dict[str, Any] = dict(sources)
    for source, of in sources.items() if fill else ():
        filled = fill_in(of, of.observation_space, of.action_space, seed=seed)
        learned[source] = filled.episodes
        if not as_json:
            for name, count in (("rewards", filled.rewards), ("actions", filled.actions)):
                good = f", {filled.explained[name]:.0%} explained where they are known" if count else ""
                say(f"logs {source}: {count:,} {name} filled in{good}")
    with stopping(f"The same command goes on from the last checkpoint in {folder}; one is written every 15 s."):
        for update in train_in(settings, folder, alone, learned):
            row: dict[str, Any] = dict(update)
            rows.append(row)
            if as_json:
                say_json(row)
            elif not row["steps"]:
                say(
                    f"{row['updates']:>10,} of {updates:,} updates from logs  loss of the actor {_number(row['actor_loss'])}"
                )
            elif len(rows) % max(1, settings.updates // 20) == 0 or len(rows) == settings.updates:
                speed = row["steps"] / max(row["seconds"], 1e-9)
                left = duration(max(0, settings.steps - row["steps"]) / speed) if speed else "?"
                say(
                    f"{row['steps']:>10,} of {settings.steps:,} steps  return {_number(row['recent'])}  {speed:,.0f} steps/s  "
                    f"left {left}"
                )
    if as_json:
        return
    if not steps:
        say(f"in {folder}: curve.json, checkpoint.pt; keepworth control play {folder} --world ID says what it earns")
        return
    say(sparkline([row["recent"] for row in rows if row["recent"] is not None], width=60))
    best = max((row["return"] for row in rows if row["return"] is not None), default=None)
    say(f"best {_number(best)}, last hundred episodes {_number(rows[-1]['recent'])}, {rows[-1]['steps']:,} steps")
    if reference:
        say(f"{in_words(reference)} Yours after {rows[-1]['steps']:,}: {_number(best)}.")
    say(f"in {folder}: curve.json, checkpoint.pt")


@app.command(
    examples="""
    keepworth control play runs/control/CartPole-v1-gru-0
    keepworth control play runs/control/CartPole-v1-gru-0 --episodes 200 --draw --logs logs/cartpole
    """
)
def play(
    run: Annotated[Path, argument("", "Folder of a run of keepworth control train.")],
    episodes: Annotated[int, option("--episodes N", "How many are played.", min=1)] = 20,
    world: Annotated[str | None, option("--world ID", "A Gymnasium id; by default the run's.")] = None,
    seed: Annotated[int, option("--seed N", "Of the first episode; each further one has the next.", min=0)] = 0,
    draw: Annotated[bool, option("--draw", "Draw actions, as in training, instead of taking the likeliest.")] = False,
    logs: Annotated[Path | None, option("--logs FOLDER", "Write the episodes there, in Minari's format.")] = None,
    as_json: Annotated[bool, option("--json", "Print the returns as JSON.")] = False,
) -> None:
    """Play a trained network, and print what it earns; with --logs also write what it did."""
    require("control", "keepworth control play", "torch", "gymnasium")
    import torch

    from keepworth.control.logs import SpacesOf, write_logs
    from keepworth.control.run import TrainedAgent, load_checkpoint, settings_of
    from keepworth.control.run import play as play_episodes
    from keepworth.control.trials import Trials
    from keepworth.control.worlds import maker

    settings = settings_of(load_checkpoint(run))
    name = world or settings.world
    if name == SpacesOf.__qualname__:
        raise KeepworthError(f"{run} learned from logs, and no world is known.", "Give --world ID.")
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    made = maker(name)()
    played = Trials(made, settings.trial) if settings.trial > 1 else made
    rollouts = list(play_episodes(TrainedAgent.load(run), played, episodes, seed=seed, deterministic=not draw))
    returns = [sum(step[2] for step in rollout) for rollout in rollouts]
    if logs is not None:
        by = f"keepworth control, {getattr(settings, 'learner', 'ppo')}"
        write_logs(logs, rollouts, played.observation_space, played.action_space, by=by, world=name)
    if as_json:
        say_json({"world": name, "returns": returns})
        return
    mean, steps = sum(returns) / episodes, sum(map(len, rollouts))
    say(
        f"{episodes} episodes in {name}: return {_number(mean)}, from {_number(min(returns))} to {_number(max(returns))}"
    )
    if logs is not None:
        say(f"in {logs}: {steps:,} steps")


@app.command(
    name="logs",
    examples="""
    keepworth control logs logs/cartpole
    """,
)
def show_logs(
    folder: Annotated[Path, argument("", "Folder of logs in Minari's format.")],
    as_json: Annotated[bool, option("--json", "Print all as JSON.")] = False,
) -> None:
    """Print what logs hold: episodes, steps, returns, spaces, who acted; or what they lack to be learned from."""
    require("control", "keepworth control logs", "torch", "gymnasium")
    from keepworth.control.logs import read_logs

    logs = read_logs(folder)
    rows = {
        "name": logs.name,
        "episodes": len(logs),
        "steps": sum(logs.steps),
        "terminated": sum(logs.terminated),
        "returns": [None if paid != paid else paid for paid in logs.paid],
        "observations": str(logs.observation_space),
        "actions": str(logs.action_space),
        "world": logs.world,
        "by": logs.by,
    }
    if as_json:
        say_json(rows)
        return
    say(f"{logs.name}: {_summary(logs)}")
    say(f"{sum(logs.terminated)} of {len(logs)} episodes were ended by the world, the others were cut off")
    say(f"observations {logs.observation_space}, actions {logs.action_space}")
    if not logs.by:
        say(
            "They do not say who acted: write algorithm_name into metadata.json, so that what is learned can be traced."
        )


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

    from keepworth.control.table import read_cells, summarise

    summary = (
        read_json(folder, "Name a folder of runs, or the file that `keepworth control table --json` printed.")
        if folder.is_file()
        else summarise(read_cells(folder))
    )
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


def _logs(folders: list[Path]) -> dict[str, MinariLogs]:
    """Opens folders of logs, by their names."""
    from keepworth.control.logs import read_logs

    sources: dict[str, MinariLogs] = {}
    for logs in map(read_logs, folders):
        if logs.name in sources:
            raise KeepworthError(f"Two folders of logs are named {logs.name!r}.", "Rename one of them.")
        sources[logs.name] = logs
    return sources


def _summary(logs: MinariLogs) -> str:
    """What logs hold, in a line."""
    paid = [value for value in logs.paid if value == value]
    least, most = (min(paid), max(paid)) if paid else (None, None)
    returns = (
        f"returns {_number(sum(paid) / len(paid))} ({_number(least)} to {_number(most)})" if paid else "no rewards"
    )
    lacking = f", {len(logs) - len(paid)} episodes without all rewards" if 0 < len(paid) < len(logs) else ""
    world, by = (logs.world or "a world that is not named"), (logs.by or "nobody who is named")
    return f"{len(logs):,} episodes, {sum(logs.steps):,} steps in {world} by {by}, {returns}{lacking}"


def _shares(words: list[str]) -> dict[str, float]:
    """Reads the words of --share."""
    shares = {}
    for word in words:
        name, _, share = word.rpartition("=")
        try:
            shares[name] = float(share)
        except ValueError:
            raise KeepworthError(f"--share {word} is no NAME=SHARE.", "Write --share play=0.5, for example.") from None
    return shares


def _settings(
    learner: str,
    memory: str,
    world: str,
    steps: int,
    seed: int,
    envs: int | None,
    assign: list[str],
    updates: int | None,
    shares: dict[str, float],
) -> PpoSettings | OffPolicySettings:
    """Makes the learner's settings from the command line. A name of `--set` is one of the learner's, else one of the memory's."""
    from inspect import signature

    from keepworth.base.errors import require_known
    from keepworth.control.settings import CHOOSERS, LEARNERS, OffPolicySettings, PpoSettings
    from keepworth.registry import method
    from keepworth.worlds.benchmark import read_settings

    require_known("learner", learner, ["ppo", *LEARNERS, *CHOOSERS, "bc"])
    if learner == "ppo" and updates is not None:
        raise KeepworthError("PPO learns from nothing but what it plays, and not from --logs.", "Set --learner to iql.")
    chosen: dict[str, Any] = {"memory": memory, "world": world, "steps": steps, "seed": seed}
    if envs is not None:
        chosen["envs"] = envs
    all_settings = signature(PpoSettings if learner == "ppo" else OffPolicySettings).parameters
    apart = (*chosen, "envs", "learner", "memory_settings", "shares", "logged")
    accepted = {name: of for name, of in all_settings.items() if name not in apart}
    parameters = signature(method("memory_module", memory).make).parameters
    of_memory = {name: of for name, of in parameters.items() if of.kind is of.KEYWORD_ONLY}
    values = read_settings({**accepted, **of_memory}, assign, f"keepworth control with memory {memory!r}")
    chosen["memory_settings"] = {name: values.pop(name) for name in set(values) - set(accepted)}
    if learner != "ppo":
        return OffPolicySettings(**{**chosen, "learner": learner, "logged": updates or 0, "shares": shares, **values})
    for name in ("bonus", "predict"):
        if f"{name}_weight" in values and values.get(name, "none") == "none":
            raise KeepworthError(f"{name}_weight has no effect without {name}.", f"Set {name} too, or leave it out.")
    # With fewer worlds than minibatches an update is not divided.
    chosen["minibatches"] = min(4, envs or PpoSettings.envs)
    return PpoSettings(**{**chosen, **values})


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"

"""Writes the evidence of what learns from logs, of StaQ, LaRe, Sequence RL, AMAGO and what imagines.

It reads the cells of `benchmarks.control`.

python -m benchmarks.methods.from_logs

WSRL is held against the same without a warm-up and with the logs kept, in its return and in how far it falls after the logs.
IQL is held against behaviour cloning and against itself with permuted rewards, CQL against behaviour cloning; logs that were
filled in against IQL with all labels. LaRe is held against the same without its factors, with factors of other steps, and
against the sum of rewards alone; Sequence RL against SAC whose actions are held, and with the recall of others. Imitation of
two demonstrations beside PPO is held against PPO alone, against imitation alone and against permuted demonstrations; an encoder
and a reward from demonstrations against PPO alone, each alone and permuted ones. Bisimulation of histories is held against IQL
without it and with permuted rewards; forward-backward with memory against the same without, and against half of what that loses
by flicker; conservative forward-backward, by kind of logs, against the same without and against values that are lowered beside
drawn choices. StaQ is held against the policy of the last critics alone, in its return and in how much returns oscillate. RA-DT
is held against the same transformer without retrieval, with a long and with as short a context, and against itself where it
reads what was played of another task; AMAGO against recurrent PPO, and against itself without its memory or without goals
exchanged in hindsight. R2I and Drama are held against recurrent PPO at the better of two learning rates, RePo and InfoPower
among distractors against R2I, which reconstructs them, in what they earn and in what can be read from their latents.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.control.staq import LONGEST
from benchmarks.methods.learners import RETURNS
from benchmarks.methods.write import arm, begin, gap, measuring, worded, write
from benchmarks.record import arguments
from benchmarks.tables import ROOT, read

Measured = dict[str, Any]


def main() -> None:
    begin(measuring(arguments(__doc__, json=False)).parse_args())
    for file, judges in (
        ("from_logs", {"wsrl": warm_start}),
        ("logs_alone", {"iql": imitation, "cql": conservatism, "ss_orl": filled_in}),
        ("staq", {"staq": oscillation}),
        ("late_rewards", {"lare": late_rewards}),
        ("sequences", {"sequence_rl": seldom_decisions}),
        ("few_demonstrations", {"il_rl": demonstrated}),
        ("pretraining", {"nce_pretraining": pretrained}),
        ("dark_rooms", {"ra_dt": retrieval}),
        ("amago", {"amago": shared_memory}),
        ("bisimulation", {"history_bisimulation": drawn_together}),
        ("flicker", {"forward_backward": recovered}),
        ("poor_logs", {"conservative_forward_backward": conservative_values}),
        ("imagination", {"r2i": imagined("R2I"), "drama": imagined("Drama")}),
        ("distractors", {"repo": undistracted("RePo"), "infopower": undistracted("InfoPower")}),
    ):
        if (ROOT / "benchmarks" / "control" / f"{file}.json").exists():
            measured = read(f"control/{file}")
            for name, judge in judges.items():
                write(name, f"{measured['command']}; python -m benchmarks.methods.from_logs", **judge(measured))


def scores_of(measured: Measured, field: str = "score") -> dict[str, list[float]]:
    """By arm its values, of the seeds that all arms have."""
    cells = {(cell["arm"], cell["seed"]): cell for cell in measured["cells"]}
    arms = list(dict.fromkeys(name for name, _ in cells))
    whole = [name for name in arms if sum(of == name for of, _ in cells) > 1]
    seeds = [seed for seed in measured["seeds"] if all((name, seed) in cells for name in whole)]
    return {name: [cells[name, seed][field] for seed in seeds] for name in whole if field in cells[name, seeds[0]]}


def fields(
    measured: Measured,
    arms: list[Measured],
    gaps: Sequence[Measured],
    controls: list[str],
    model: str,
    opening: str,
    digits: int = 0,
) -> Measured:
    """The fields of a record.

    Args:
        measured: The cells.
        arms: The arms of the record.
        gaps: Its comparisons.
        controls: What could have refuted the claim.
        model: The networks.
        opening: The sentence before the numbers.
        digits: Digits after the point in the sentence.
        digits: Of the numbers, behind the point.
    """
    means = ", ".join(f"{of['name']} {of['mean']:.{digits}f}" for of in arms)
    return {
        "sentence": f"{opening}: {means}. {'; '.join(worded(of, digits) for of in gaps)}",
        "revision": measured["machine"]["revision"],  # of the cells
        "model": model,
        "n": arms[0]["n"],
        "seeds": arms[0]["n"],
        "unit": measured["unit"],
        "arms": arms,
        "comparisons": list(gaps),
        "controls": controls,
    }


GRU = "a GRU of width 64 for the actor and one for the critics"


def warm_start(measured: Measured) -> Measured:
    """The record of WSRL."""
    scores, dips = scores_of(measured), scores_of(measured, "dip")
    others = ("without warm-up", "logs kept", "without logs")
    gaps = [gap(other, scores["WSRL"], scores[other]) for other in others]
    gaps += [gap(f"dip: {other}", dips["WSRL"], dips[other]) for other in others[:2]]
    arms = [arm(name, values, within=RETURNS) for name, values in scores.items()]
    arms += [arm(f"dip: {name}", values, within=None) for name, values in dips.items() if name != "without logs"]
    before = (
        "Mean return of a pendulum whose speed is not shown, after 600 decisions that follow 1,000 updates from logs"
    )
    return fields(measured, arms, gaps, ["the same without a warm-up", "RSAC without logs"], GRU, before)


def imitation(measured: Measured) -> Measured:
    """The record of IQL."""
    scores = scores_of(measured)
    names = [name for name in ("IQL", "BC", "CQL", "rewards permuted") if name in scores]
    gaps = [gap(other, scores["IQL"], scores[other]) for other in names[1:]]
    arms = [arm(name, scores[name], within=RETURNS) for name in names]
    before = "Mean return from logs alone, half of a policy and half at random"
    return fields(measured, arms, gaps, ["the same rewards, dealt out anew", "behaviour cloning"], GRU, before)


def conservatism(measured: Measured) -> Measured:
    """The record of CQL."""
    scores = scores_of(measured)
    gaps = [gap(other, scores["CQL"], scores[other]) for other in ("BC", "IQL")]
    arms = [arm(name, scores[name], within=RETURNS) for name in ("CQL", "BC", "IQL")]
    before = "Mean return from logs alone, half of a policy and half at random"
    return fields(measured, arms, gaps, ["behaviour cloning"], GRU, before)


def filled_in(measured: Measured) -> Measured:
    """The record of SS-ORL."""
    scores, explained = scores_of(measured), scores_of(measured, "explained")
    made = ("rewards filled in", "actions filled in")
    gaps = [gap(f"{name} minus all labels", scores[name], scores["IQL"]) for name in made]
    gaps += [gap(f"{name} minus a tenth alone", scores[name], scores["a tenth"]) for name in made]
    names = ("IQL", *made, "a tenth", "rewards permuted")
    arms = [arm("all labels" if name == "IQL" else name, scores[name], within=RETURNS) for name in names]
    shares = " and ".join(f"{np.mean(explained[name]):.0%} of the variance of {name.split()[0]}" for name in made)
    before = f"From eight of 80 episodes with labels, networks explain {shares} of the others; mean return of IQL"
    return fields(measured, arms, gaps, ["a tenth of the logs alone", "rewards dealt out anew"], GRU, before)


def late_rewards(measured: Measured) -> Measured:
    """The record of LaRe."""
    scores = scores_of(measured)
    gaps = [gap(other, scores["LaRe"], values) for other, values in scores.items() if other != "LaRe"]
    arms = [arm(name, values, within=RETURNS) for name, values in scores.items()]
    controls = ["the factors of other steps", "the observation and the action themselves", "the true rewards"]
    before = (
        "Mean return of a pendulum among distracting numbers, whose rewards are paid in one sum, after 2,400 decisions"
    )
    return fields(measured, arms, gaps, controls, "networks of width 64", before)


def seldom_decisions(measured: Measured) -> Measured:
    """The record of Sequence RL."""
    scores = scores_of(measured)
    gaps = [gap(other, scores["Sequence RL"], values) for other, values in scores.items() if other != "Sequence RL"]
    arms = [arm(name, values, within=RETURNS) for name, values in scores.items()]
    before = "Mean return of a pendulum that is decided after every .4 s, after 3,000 steps of .1 s"
    return fields(measured, arms, gaps, ["the recall of other sequences"], "networks of width 64", before)


ROOMS = {"MiniGrid-MultiRoom-N2-S4-v0": "rooms", "BabyAI-KeyCorridorS3R1-v0": "corridor"}


def of_worlds(measured: Measured, names: dict[str, str]) -> dict[str, list[float]]:
    """By world and arm its shares of success, of the seeds that all arms of the world have. names: of the worlds."""
    by_name = dict[str, list[float]]()
    for world, name in names.items():
        scores = scores_of({**measured, "cells": [of for of in measured["cells"] if of["world"] == world]}, "success")
        by_name |= {f"{name}: {arm}": values for arm, values in scores.items()}
    return by_name


def demonstrated(measured: Measured) -> Measured:
    """The record of imitation and reinforcement."""
    scores = of_worlds(measured, ROOMS)
    gaps = [
        gap(f"{world}: {other}", scores[f"{world}: two, beside"], scores[f"{world}: {other}"])
        for world in ROOMS.values()
        for other in ("none", "two, permuted", "two, imitated alone", "two, first")
    ]
    arms = [arm(name, values) for name, values in scores.items()]
    controls = ["the actions of the demonstrations, dealt out anew", "PPO alone", "imitation alone"]
    before = "Share of episodes that reach the goal, after 50,000 steps"
    return fields(measured, arms, gaps, controls, "a GRU of width 64 that policy and values share", before, 2)


def pretrained(measured: Measured) -> Measured:
    """The record of contrastive pre-training with a reward of progress."""
    scores = scores_of(measured, "success")
    others = ("none", "both, permuted", "NCE", "reward", "imitated alone")
    gaps = [gap(other, scores["both"], scores[other]) for other in others]
    gaps += [gap(f"{name} minus none", scores[name], scores["none"]) for name in ("NCE", "reward")]
    arms = [arm(name, values) for name, values in scores.items()]
    controls = ["the observations of the demonstrations, dealt out anew", "PPO alone"]
    before = "Share of episodes that reach the goal, after 50,000 steps"
    return fields(measured, arms, gaps, controls, "a GRU of width 64 that policy and values share", before, 2)


def retrieval(measured: Measured) -> Measured:
    """The record of RA-DT, of the arms that have all seeds."""
    counts = Counter(cell["arm"] for cell in measured["cells"])
    whole = [cell for cell in measured["cells"] if counts[cell["arm"]] == max(counts.values())]
    scores = scores_of({**measured, "cells": whole})
    others = [name for name in ("context 400", "context 50", "another task", "keys shuffled") if name in scores]
    gaps = [gap(other, scores["RA-DT"], scores[other]) for other in others]
    arms = [arm(name, values) for name, values in scores.items()]
    controls = ["what was played of another task", "keys dealt out anew", "the same context without retrieval"]
    before = "Mean return in dark rooms that were not logged, with a memory that begins empty"
    return fields(measured, arms, gaps, controls, "transformers of two layers of width 48", before, 2)


def shared_memory(measured: Measured) -> Measured:
    """The record of AMAGO."""
    arms, gaps = list[Measured](), list[Measured]()
    for world in dict.fromkeys(cell["world"] for cell in measured["cells"]):
        scores = scores_of({**measured, "cells": [cell for cell in measured["cells"] if cell["world"] == world]})
        rates = [name for name in scores if name.startswith("PPO")]
        scores["PPO"] = max((scores.pop(name) for name in rates), key=np.mean)
        gaps += [gap(f"{world}: {name}", scores["AMAGO"], of) for name, of in scores.items() if name != "AMAGO"]
        arms += [arm(f"{world}: {name}", values, within=(-1.0, 2.0)) for name, values in scores.items()]
    controls = ["AMAGO without a memory", "AMAGO with the goals as they were"]
    before = "Mean return after as many steps of the world"
    return fields(measured, arms, gaps, controls, "networks of width 64 with the memory lru", before, 2)


def imagined(name: str) -> Callable[[Measured], Measured]:
    """Returns what makes the record of an arm that imagines."""

    def judge(measured: Measured) -> Measured:
        arms, gaps = list[Measured](), list[Measured]()
        for world in dict.fromkeys(cell["world"] for cell in measured["cells"]):
            scores = scores_of({**measured, "cells": [cell for cell in measured["cells"] if cell["world"] == world]})
            rates = [arm for arm in scores if arm.startswith("PPO")]
            scores["PPO"] = max((scores.pop(arm) for arm in rates), key=np.mean)
            gaps += [gap(f"{world}: {other}", scores[name], of) for other, of in scores.items() if other != name]
            arms += [arm(f"{world}: {other}", values) for other, values in scores.items()]
        controls = ["recurrent PPO with the same steps", "actions that are drawn evenly"]
        before = "Mean return after 2,000 steps of the world, where half is chance and 1 is all"
        return fields(measured, arms, gaps, controls, "networks of width 32", before, 2)

    return judge


def undistracted(name: str) -> Callable[[Measured], Measured]:
    """Returns what makes the record of an arm that does not reconstruct."""

    def judge(measured: Measured) -> Measured:
        scores = scores_of(measured)
        rates = [arm for arm in scores if arm.startswith("PPO")]
        scores["PPO"] = max((scores.pop(arm) for arm in rates), key=np.mean)
        gaps = [gap(other, scores[name], of) for other, of in scores.items() if other != name]
        arms = [arm(other, values) for other, values in scores.items()]
        imagining = [cell for cell in measured["cells"] if "state" in cell]
        for kind in ("state", "white", "drifting"):
            read_from = scores_of({**measured, "cells": imagining}, kind)
            gaps.append(gap(f"{kind}: R2I", read_from[name], read_from["R2I"]))
            arms += [arm(f"{kind}: {other}", values) for other, values in read_from.items()]
        controls = ["R2I, which reconstructs", "recurrent PPO", "actions that are drawn evenly"]
        before = (
            "Mean return among eight numbers that mean nothing, and shares of variance that are read from the latent"
        )
        return fields(measured, arms, gaps, controls, "networks of width 32 with the memory lru", before, 2)

    return judge


def drawn_together(measured: Measured) -> Measured:
    """The record of bisimulation of histories."""
    scores = scores_of(measured)
    gaps = [gap(other, scores["bisimulation"], scores[other]) for other in scores if other != "bisimulation"]
    arms = [arm(name, values) for name, values in scores.items()]
    controls = ["rewards of other steps in the loss of bisimulation", "IQL without it", "behaviour cloning"]
    before = "Share of episodes that go through the door that a cue named, from 80 logged episodes among pictures"
    return fields(measured, arms, gaps, controls, "a GRU of width 32 for the actor and one for the critics", before, 2)


def recovered(measured: Measured) -> Measured:
    """The record of forward-backward with memory."""
    scores = scores_of(measured)
    half = np.mean([scores["no memory"], scores["all shown"]], axis=0).tolist()
    gaps = [gap("half of the loss", scores["memory"], half)]
    gaps += [gap(other, scores["memory"], scores[other]) for other in scores if other != "memory"]
    arms = [arm(name, values) for name, values in scores.items()]
    controls = ["tasks that are named by rewards of other steps", "the same without memory", "behaviour cloning"]
    before = "Share of steps that are paid for tasks that were named after learning, where half of the observations are zeros"
    return fields(measured, arms, gaps, controls, "a GRU of width 64 for F and one for B", before, 2)


def conservative_values(measured: Measured) -> Measured:
    """The record of conservative forward-backward, by kind of logs."""
    arms, gaps = list[Measured](), list[Measured]()
    for kind in dict.fromkeys(cell["kind"] for cell in measured["cells"]):
        scores = scores_of({**measured, "cells": [cell for cell in measured["cells"] if cell["kind"] == kind]})
        others = [name for name in scores if name != "conservative"]
        gaps += [gap(f"{kind}: {other}", scores["conservative"], scores[other]) for other in others]
        arms += [arm(f"{kind}: {name}", values) for name, values in scores.items()]
    controls = ["values lowered beside drawn choices", "the same without conservative values", "moves that are drawn"]
    before = "Share of steps that are paid for tasks that were named after learning, by kind of logs"
    return fields(measured, arms, gaps, controls, "networks of width 64 for F and B without a memory", before, 2)


def oscillation(measured: Measured) -> Measured:
    """The record of StaQ."""
    scores, swings = scores_of(measured), scores_of(measured, "oscillation")
    others = [name for name in ("the last critics", "actor") if name in scores]
    gaps = [gap(f"oscillation: {other}", swings["StaQ"], swings[other]) for other in others]
    gaps += [gap(other, scores["StaQ"], scores[other]) for other in others]
    arms = [arm(name, values, within=(0.0, LONGEST)) for name, values in scores.items()]
    arms += [arm(f"oscillation: {name}", values, within=None) for name, values in swings.items()]
    before = "Mean length of episodes of CartPole over the last third of the steps, and its standard deviation there"
    return fields(
        measured, arms, gaps, ["the last critics alone", "SAC, whose actor learns"], "networks of width 32", before
    )


if __name__ == "__main__":
    main()

"""Loops of robot learning: what a demonstration, a correction, a reward for progress, pre-training, checkpoints, an early stop
and weights of tasks are each worth to the same learner, at the same number of steps and updates.

A point finds its way through four rooms to one of four goals, of which it is told. Only the goal is paid, with 1. The learner is
double Q-learning with layer normalisation. Each arm adds one thing to it; the paper that it is from stands beside it:

    demonstrations   half of each batch is from three noisy walks of a guide to each goal (HIL-SERL, arXiv 2410.21845)
    corrector q      where eight steps brought the point no nearer, the guide takes over with probability q for the next eight.
                     These steps are in both halves of the batch (HIL-SERL)
    progress         paid besides is what a network says of two observations, the signed steps between them. It learned that
                     from walks without moves: pairs in both orders, and mismatched ones (VLAC, arXiv 2509.15937)
    pre-training     the first layers are those of a value learned by TD from the same walks (V-PTR, arXiv 2309.13041)
    checkpoints      after a failure an episode begins at a checkpoint of one demonstration (FastRLAP, arXiv 2304.09831)
    early stop       an episode ends after twice the steps of its task's shortest known success (ActiveVLN, arXiv 2509.12618); one
                     in twenty goes on, which says whether those that are stopped would have failed
    weights          tasks are drawn with weight exp((.5 - success) / .25) (VLA-RL, arXiv 2505.18719)

Each has a control in which what it rests on is broken, see `ARMS`. Scores: "success", the share of trials that come to the goal,
over all tests of the training; "steps", the share of its steps until .9 do in two tests in a row (1 where never); "help", the
share of steps that a corrector made; and "late", the share of episodes that succeeded after the early stop had ended them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from keepworth.base.arrays import Floats
from keepworth.evaluation.study import Rows, Study, arms_of, differences, rows_of
from keepworth.methods.studies._four_goals import MOVES, gains, trials
from keepworth.registry import Method

STEPS, WARM, TESTS, TRIALS, ENOUGH = 15_000, 500, 20, 25, 0.9
"""Steps of each arm, those before the first update, tests, trials of each task in a test, and the success that is asked for."""
HALF = "steps: half of those of demonstrations"


@dataclass(frozen=True)
class Loop:
    """What an arm adds to the plain learner. Where an attribute has two words, the second is the control of the first.

    Attributes:
        demonstrations: "" or "walked"; "dealt" deals their moves out anew.
        corrected: The probability of a correction.
        corrector: "guide", or "chance", who takes over with drawn moves.
        progress: "" or "pairs"; "permuted" permutes what is said of pairs.
        pretrained: "" or "walks"; "shuffled" puts the observations of each walk in a drawn order.
        starts: "" or "checkpoints"; "anywhere" begins in drawn places.
        stopped: "" or "own"; "other" takes another task's shortest success.
        weighted: "" or "own"; "other" takes another task's success.
    """

    demonstrations: str = ""
    corrected: float = 0.0
    corrector: str = "guide"
    progress: str = ""
    pretrained: str = ""
    starts: str = ""
    stopped: str = ""
    weighted: str = ""


ARMS = {
    "plain": Loop(),
    "progress": Loop(progress="pairs"),
    "progress, permuted": Loop(progress="permuted"),
    "pre-training": Loop(pretrained="walks"),
    "pre-training, shuffled": Loop(pretrained="shuffled"),
    "checkpoints": Loop(starts="checkpoints"),
    "starts anywhere": Loop(starts="anywhere"),
    "demonstrations": Loop("walked"),
    "demonstrations, dealt": Loop("dealt"),
    "corrector .5": Loop("walked", 0.5),
    "corrector 1": Loop("walked", 1.0),
    "corrector by chance": Loop("walked", 0.5, "chance"),
    "early stop": Loop("walked", stopped="own"),
    "early stop, other": Loop("walked", stopped="other"),
    "weights": Loop("walked", weighted="own"),
    "weights, other": Loop("walked", weighted="other"),
}
CLAIMS = (
    ("demonstrations", "plain", "demonstrations, dealt"),
    ("corrector .5", "demonstrations", "corrector by chance"),
    ("corrector 1", "demonstrations", "corrector by chance"),
    ("progress", "plain", "progress, permuted"),
    ("pre-training", "plain", "pre-training, shuffled"),
    ("checkpoints", "plain", "starts anywhere"),
    ("early stop", "demonstrations", "early stop, other"),
    ("weights", "demonstrations", "weights, other"),
)
"""Arms, each with what it is added to, and its control."""


def steps_until(curve: Floats) -> float:
    """Returns the share of the steps at the first of two tests in a row that reach `ENOUGH`; 1 where there is none."""
    both = (curve[:-1] >= ENOUGH) & (curve[1:] >= ENOUGH)
    return float(both.argmax() + 1) / len(curve) if both.any() else 1.0


def measure(seed: int, steps: int, repeats: int) -> dict[str, float]:
    """Returns the scores of all arms.

    Args:
        seed: Of the walks and all draws.
        steps: Of each arm.
        repeats: How often each arm practises, side by side.
    """
    from keepworth.methods.studies._practice import Practice

    practice, curves = Practice(seed, [*ARMS.values()] * repeats, steps), list[Floats]()
    for step in range(steps):
        practice.step()
        if step >= WARM:
            practice.learn()
        if (step + 1) % (steps // TESTS) == 0:
            curves.append(trials(practice.best, TRIALS, len(practice.loops), [seed, step]))
    curve = np.stack(curves, 1).reshape(repeats, len(ARMS), len(curves))
    draw = np.random.default_rng(seed)
    rules = {
        "chance": lambda tasks, places: draw.integers(len(MOVES), size=tasks.shape),
        "guide": lambda tasks, places: gains(tasks, places).argmax(-1),
    }
    scores = {f"success: {name}": float(trials(rule, TRIALS, 1, [seed, steps])[0]) for name, rule in rules.items()}
    for arm, name in enumerate(ARMS):
        scores[f"success: {name}"] = float(curve[:, arm].mean())
        scores[f"steps: {name}"] = float(np.mean([steps_until(one) for one in curve[:, arm]]))
        if ARMS[name].corrected:
            scores[f"help: {name}"] = float(practice.helped[arm :: len(ARMS)].mean()) / steps
        if name in ("demonstrations", "early stop"):
            late = [arrived for arrivals in practice.late[arm :: len(ARMS)] for arrived in arrivals]
            scores[f"late: {name}"] = float(np.mean(late)) if late else 0.0
    return scores | {HALF: 0.5 * scores["steps: demonstrations"]}


def run(*, seeds: int = 8, steps: int = STEPS, repeats: int = 2, first_seed: int = 0) -> Rows:
    """Lets all arms practise, and measures how often, and how soon, they come to their goals.

    Args:
        seeds: Draws of walks.
        steps: Steps of each arm.
        repeats: How often each arm practises with a seed.
        first_seed: The first of the seeds.
    """
    scores = arms_of(measure(seed, steps, repeats) for seed in range(first_seed, first_seed + seeds))
    clusters = [str(seed) for seed in range(seeds)]
    pairs = [(f"success: {arm}", f"success: {other}") for arm, *others in CLAIMS for other in others]
    pairs += [(f"steps: {arm}", HALF) for arm in ("corrector .5", "corrector 1")]
    pairs += [("steps: corrector .5", f"steps: {other}") for other in ("demonstrations", "corrector by chance")]
    return rows_of(scores, clusters) + differences(scores, pairs, clusters)


METHOD = Method(
    kind="study",
    name="robot_loops",
    title="Loops of robot learning (HIL-SERL, VLAC, V-PTR, FastRLAP, ActiveVLN, VLA-RL)",
    paper="arXiv 2410.21845, 2509.15937, 2309.13041, 2304.09831, 2509.12618, 2505.18719",
    about="What demonstrations, corrections, a reward for progress, pre-training and more are each worth to the same learner",
    tags=("parametric", "experiential", "formation"),
    claim="Each reaches more in as many steps; a corrector halves the steps until nine in ten episodes succeed.",
    differs=(
        "A point in four rooms with eight moves and a double Q-network in the place of robots, pictures and large policies; "
        "corrections, walks and demonstrations are of a rule that knows the ways. What is learned from walks before the first "
        "step is not counted as updates."
    ),
    label="small",
    make=Study(run, "share of trials that reach the goal over the training, and shares of its steps"),
)

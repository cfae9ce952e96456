"""SkillMimic-V2: skills learned from few noisy clips, which are stitched together and begun beside them ("SkillMimic-V2: learning
robust and generalizable interaction skills from sparse and noisy demonstrations", arXiv 2505.02094).

A point with a place and a speed is pushed in a plane with pits, in a wind that is drawn for each episode and not seen. Of each of
three skills (a circle, an eight, a swing above both) there are two clips of `FRAMES` noisy frames, without actions. A policy sees
the point and which skill is asked for. A step is paid by how near the point is to the frame of its clip:

    similarity(s, f) = exp(-4 |place - place_f|^2 - 0.25 |speed - speed_f|^2)

Stitched graph: with a probability of `SWITCH` an episode begins at a frame of one skill and is asked for another. It is joined to
the most similar frame of that one behind N masked frames, which are not paid; N grows with the square root of minus the logarithm
of the similarity. State transition field: with a probability of `BESIDE` it begins at a frame that is moved by noise, and is
joined in the same way. Adaptive sampling: clips are drawn with weight (1 - alpha) / n + alpha softmax(-5 mean reward), and their
frames with weight exp(-10 reward), from running means. All of it is learned by PPO.

Scores: the share of trials in which the asked skill is shown without a fall in the last third of 60 steps (mean similarity to its
clean path of at least .5), from starts on its path ("own"), beside it ("beside"), and on the path of another skill ("switch"),
which no clip shows. Arms: "full"; "history", the same with a recurrent memory, from which the wind can be told; each of the three
left out; "clips", without any; and the control "joined anywhere", which joins to a drawn frame of the skill. Beside them chance,
a rule that steers to the next of the frames of clips, and the same rule on the clean paths."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from keepworth.base.arrays import Bools, Floats
from keepworth.evaluation.study import Rows, Study, arms_of, differences, rows_of
from keepworth.registry import Method

if TYPE_CHECKING:
    import gymnasium

SKILLS, PERIOD, FRAMES, NOISE = 3, 40, 24, 0.04
STEP, DRAG, PUSH, WIND = 0.1, 0.95, 6.0, 0.06
SWITCH, BESIDE, MASKED, LAST = 0.3, 0.1, 2.0, 8
"""Chances to begin elsewhere, masked frames per unit of distance, and the frames at the end of a clip at which none begins."""
ALPHA = 0.5
SPREAD = np.array([0.4, 0.4, 1.5, 1.5])
"""How far a start is moved beside a frame: the deviations of places and speeds."""
STEPS, TRIAL, TRIALS, SHOWN = 300_000, 60, 300, 0.5


@dataclass(frozen=True)
class Parts:
    """Which parts of the method an arm has.

    Attributes:
        graph: Episodes begin at a frame of one skill and are asked for another.
        off_path: Episodes begin beside frames, in the state transition field.
        adaptive: Clips and frames from which less was earned are drawn more often.
        memory: The network's memory over time; "mlp" has none.
        anywhere: A state is joined to a drawn frame of the skill in place of the most similar one.
    """

    graph: bool = True
    off_path: bool = True
    adaptive: bool = True
    memory: str = "mlp"
    anywhere: bool = False


ARMS = {
    "full": Parts(),
    "history": Parts(memory="gru"),
    "no graph": Parts(graph=False),
    "no field": Parts(off_path=False),
    "even draws": Parts(adaptive=False),
    "clips": Parts(graph=False, off_path=False, adaptive=False),
    "joined anywhere": Parts(anywhere=True),
}
STARTS = ("own", "beside", "switch")


def path_of(skill: int, frames: Floats) -> Floats:
    """Returns the clean places of a skill at some frames, [frames, 2]."""
    angle = 2.0 * np.pi * frames / PERIOD
    if skill == 0:
        return np.stack([np.cos(angle) - 1.5, np.sin(angle)], -1)
    if skill == 1:
        return np.stack([1.5 + np.sin(angle), 0.8 * np.sin(2.0 * angle)], -1)
    return np.stack([1.6 * np.cos(angle), 1.8 + 0.15 * np.sin(2.0 * angle)], -1)


def states_along(places: Floats) -> Floats:
    """Returns the states, place and speed, of all but the last of some places, [frames - 1, 4]."""
    return np.concatenate([places[:-1], np.diff(places, axis=0) / STEP], 1)


def clean_paths() -> Floats:
    """Returns the clean states of each skill over a period, [skills, PERIOD, 4]."""
    return np.stack([states_along(path_of(skill, np.arange(PERIOD + 1.0))) for skill in range(SKILLS)])


def distance(states: Floats, frames: Floats) -> Floats:
    """Returns minus the logarithm of the similarity of states and frames, which are broadcast."""
    apart = (states - frames) ** 2
    return np.asarray(4.0 * apart[..., :2].sum(-1) + 0.25 * apart[..., 2:].sum(-1))


def is_fallen(places: Floats) -> Bools:
    """Returns which places are in a pit or too far away."""
    x, y = places[..., 0], places[..., 1]
    pit = (abs(x) < 0.2) & (y < 0.9)
    holes = ((x + 1.5) ** 2 + y**2 < 0.25) | ((abs(x - 1.5) - 0.55) ** 2 + y**2 < 0.04)
    return np.asarray(pit | holes | (abs(x) > 3.0) | (y > 2.5) | (y < -1.5))


def moved(state: Floats, generator: np.random.Generator) -> Floats:
    """Returns a state beside another one, outside of all pits."""
    while is_fallen((other := state + SPREAD * generator.standard_normal(4))[:2]):
        pass
    return np.asarray(other)


def pushed(states: Floats, actions: Floats, wind: Floats) -> Floats:
    """Returns the states a step later, [..., 4].

    Args:
        states: Places and speeds, [..., 4].
        actions: The push in both directions, [..., 2], which is clipped to [-1, 1].
        wind: What moves the place besides, [..., 2].
    """
    speed = DRAG * states[..., 2:] + STEP * PUSH * np.clip(actions, -1.0, 1.0)
    return np.concatenate([states[..., :2] + STEP * (speed + 5.0 * wind), speed], -1)


@dataclass
class Clips:
    """The frames of all clips, with running means of what was earned from each, from which starts are drawn.

    Attributes:
        frames: States, [clips * FRAMES, 4].
        skill: The skill of each.
        parts: What the arm has.
        earned: A running mean of the reward of episodes that began at each frame.
    """

    frames: Floats
    skill: np.ndarray
    parts: Parts
    earned: Floats = field(init=False)

    def __post_init__(self) -> None:
        self.earned = np.full(len(self.frames), 0.5)
        self._starts = np.tile(np.arange(FRAMES) < FRAMES - LAST, len(self.frames) // FRAMES)

    def draw(self, generator: np.random.Generator) -> int:
        """Draws the frame at which an episode begins."""
        earned = self.earned.reshape(-1, FRAMES)[:, : FRAMES - LAST]
        if not self.parts.adaptive:
            return int(generator.choice(np.flatnonzero(self._starts)))
        clip = int(generator.choice(len(earned), p=clip_weights(earned.mean(1), ALPHA)))
        weight = np.exp(-10.0 * earned[clip])
        return clip * FRAMES + int(generator.choice(weight.size, p=weight / weight.sum()))

    def join(self, state: Floats, skill: int, generator: np.random.Generator) -> tuple[int, int]:
        """Returns the frame of a skill that a state is joined to, and how many masked frames lie between.

        Args:
            state: A place and a speed, [4].
            skill: The number of the skill.
            generator: Draws the frame where the arm joins anywhere.
        """
        open_frames = np.flatnonzero(self._starts & (self.skill == skill))
        far = distance(state, self.frames[open_frames])
        place = int(generator.integers(far.size)) if self.parts.anywhere else int(far.argmin())
        return int(open_frames[place]), int(np.clip(np.ceil(MASKED * np.sqrt(far[place])), 1, PERIOD))

    def learn(self, frame: int, reward: float) -> None:
        """Takes the mean reward of an episode that began at a frame."""
        self.earned[frame] += 0.1 * (reward - self.earned[frame])


def clip_weights(earned: Floats, alpha: float) -> Floats:
    """Returns the probabilities of clips by their mean rewards.

    Args:
        earned: The mean reward of each, [clips].
        alpha: How much the rewards count; 0 draws all as often.
    """
    worse = np.exp(-5.0 * (earned - earned.min()))
    return np.asarray((1.0 - alpha) / len(earned) + alpha * worse / worse.sum())


def draw_clips(parts: Parts, seed: int) -> Clips:
    """Draws two noisy clips of each skill."""
    generator = np.random.default_rng(seed)
    frames, skills = list[Floats](), list[int]()
    for skill in range(SKILLS):
        for start in (0, PERIOD // 2):
            places = path_of(skill, np.arange(start, start + FRAMES + 1.0))
            frames.append(states_along(places + NOISE * generator.standard_normal(places.shape)))
            skills += [skill] * FRAMES
    return Clips(np.concatenate(frames), np.array(skills), parts)


def seen(states: Floats, skills: np.ndarray) -> Floats:
    """Returns what a policy sees: the states and which skill is asked for, [..., 4 + SKILLS]."""
    return np.concatenate([states, np.eye(SKILLS)[skills]], -1).astype(np.float32)


def make_plane(clips: Clips) -> gymnasium.Env[Any, Any]:
    """Makes the world in which the frames of clips are paid."""
    import gymnasium

    class Plane(gymnasium.Env[Any, Any]):
        observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (4 + SKILLS,), np.float32)
        action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)

        def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Floats, dict[str, Any]]:
            super().reset(seed=seed)
            generator, parts = self.np_random, clips.parts
            self.start = self.frame = clips.draw(generator)
            self.state, self.skill, self.masked = clips.frames[self.frame].copy(), int(clips.skill[self.frame]), 0
            self.wind = WIND * generator.standard_normal(2)
            chance = generator.random()
            if chance < BESIDE and parts.off_path:
                self.state = moved(self.state, generator)
                self.frame, self.masked = clips.join(self.state, self.skill, generator)
            elif BESIDE <= chance < BESIDE + SWITCH and parts.graph:
                self.skill = int(generator.integers(SKILLS))
                self.frame, self.masked = clips.join(self.state, self.skill, generator)
            self.rewards: list[float] = []
            return seen(self.state, np.array(self.skill)), {}

        def step(self, action: Floats) -> tuple[Floats, float, bool, bool, dict[str, Any]]:
            self.state = pushed(self.state, action, self.wind)
            reward, fallen = 0.0, bool(is_fallen(self.state[:2]))
            if self.masked:
                self.masked -= 1
            else:
                self.frame += 1
                reward = 0.0 if fallen else float(np.exp(-distance(self.state, clips.frames[self.frame])))
                self.rewards.append(reward)
            over = self.frame % FRAMES == FRAMES - 1
            if fallen or over:
                clips.learn(self.start, sum(self.rewards) / max(1, len(self.rewards)))
            return seen(self.state, np.array(self.skill)), reward, fallen, over and not fallen, {}

    return Plane()


@dataclass
class SkillTrials:
    """Starts of trials: states, [trials, 4], the numbers of the asked skills, [trials], and winds, [trials, 2]."""

    states: Floats
    skills: np.ndarray
    wind: Floats


def draw_trials(starts: str, trials: int, seed: int) -> SkillTrials:
    """Draws trials.

    Args:
        starts: One of `STARTS`.
        trials: How many.
        seed: Of all draws.
    """
    generator = np.random.default_rng([seed, STARTS.index(starts)])
    here, frame = generator.integers(SKILLS, size=trials), generator.integers(PERIOD, size=trials)
    states = clean_paths()[here, frame]
    if starts == "beside":
        states = np.stack([moved(state, generator) for state in states])
    asked_for = here if starts != "switch" else (here + generator.integers(1, SKILLS, size=trials)) % SKILLS
    return SkillTrials(states, asked_for, WIND * generator.standard_normal((trials, 2)))


def shown_in(trials: SkillTrials, act: Any) -> float:
    """Returns the share of trials in which the asked skill is shown in the end.

    Args:
        trials: From where each begins, what it is asked for, and its wind.
        act: Is called with what is seen of all trials, and returns their actions, [trials, 2].
    """
    paths, states = clean_paths()[trials.skills], trials.states
    fallen, near = np.zeros(len(states), bool), []
    for _ in range(TRIAL):
        states = pushed(states, act(seen(states, trials.skills)), trials.wind)
        fallen |= is_fallen(states[:, :2])
        near.append(np.exp(-distance(states[:, None], paths).min(1)) * ~fallen)
    return float(np.mean(np.mean(near[-TRIAL // 3 :], 0) >= SHOWN))


def steer(paths: Mapping[int, Floats], ahead: int = 1) -> Any:
    """Returns a rule that pushes towards the state behind the most similar one of a skill.

    Args:
        paths: The states of each skill, [pieces, frames, 4].
        ahead: How many frames behind it.
    """

    def act(observations: Floats) -> Floats:
        states, skills = observations[:, :4], observations[:, 4:].argmax(1)
        actions = np.zeros((len(states), 2))
        for skill, pieces in paths.items():
            rows = np.flatnonzero(skills == skill)
            here, there = pieces[:, :-ahead].reshape(-1, 4), pieces[:, ahead:].reshape(-1, 4)
            goal = there[distance(states[rows, None], here).argmin(1)]
            wanted = goal[:, 2:] + (goal[:, :2] - states[rows, :2] - STEP * goal[:, 2:]) * 4.0
            actions[rows] = (wanted - DRAG * states[rows, 2:]) / (STEP * PUSH)
        return actions

    return act


def rules(clips: Clips, seed: int) -> dict[str, Any]:
    """Returns what acts without learning: chance, the rule on clips, and that on the clean paths."""
    of_clips = {skill: clips.frames[clips.skill == skill].reshape(-1, FRAMES, 4) for skill in range(SKILLS)}
    clean = {skill: path[np.arange(PERIOD + 1) % PERIOD][None] for skill, path in enumerate(clean_paths())}
    generator = np.random.default_rng(seed)
    return {
        "chance": lambda observations: generator.uniform(-1.0, 1.0, (len(observations), 2)),
        "steered by clips": steer(of_clips),
        "steered by clean paths": steer(clean),
    }


def train_policy(parts: Parts, seed: int, steps: int) -> Any:
    """Trains a policy of an arm, and returns its network.

    Args:
        parts: What the arm has.
        seed: Of the clips, the network and all draws.
        steps: Steps of all worlds together.
    """
    from keepworth.control.ppo import Trainer
    from keepworth.control.settings import PpoSettings

    settings = PpoSettings(
        memory=parts.memory, steps=steps, seed=seed, envs=32, rollout=64, chunk=32, width=64, entropy=0.0, discount=0.95,
        action_input=parts.memory != "mlp",
    )  # fmt: skip
    clips = draw_clips(parts, seed)
    trainer = Trainer(settings, lambda: make_plane(clips))
    for _ in trainer.train():
        pass
    return trainer.network


def acting(network: Any, trials: int) -> Any:
    """Returns what acts by a network, without noise, from the first step of some trials on."""
    import torch

    from keepworth.control.network import start_carry

    state, action, reward = start_carry(network, trials)
    starts = torch.ones(trials, dtype=torch.bool)

    def act(observations: Floats) -> Floats:
        nonlocal state, action, starts
        with torch.no_grad():
            x = network.input(torch.from_numpy(observations), action, reward, starts)
            outputs, _, state = network.step(x, state, starts)
        action, starts = outputs[..., :2], torch.zeros(trials, dtype=torch.bool)
        return np.asarray(action.numpy())

    return act


def run(*, seeds: int = 5, steps: int = STEPS, trials: int = TRIALS, first_seed: int = 0) -> Rows:
    """Trains a policy for each arm, and measures how often it shows the skill that is asked for.

    Args:
        seeds: Draws of clips and policies of each arm.
        steps: Steps of a training.
        trials: Trials from each kind of start.
        first_seed: The first of the seeds.
    """

    def measure(seed: int) -> dict[str, float]:
        networks = {arm: train_policy(parts, seed, steps) for arm, parts in ARMS.items()}
        scores: dict[str, float] = {}
        for starts in STARTS:
            tried = draw_trials(starts, trials, seed)
            actors = {arm: acting(network, trials) for arm, network in networks.items()}
            actors |= rules(draw_clips(Parts(), seed), seed)
            scores |= {f"{starts}: {arm}": shown_in(tried, act) for arm, act in actors.items()}
        return scores

    scores = arms_of(measure(seed) for seed in range(first_seed, first_seed + seeds))
    clusters = [str(seed) for seed in range(seeds)]
    others = [arm for arm in ARMS if arm != "full"]
    pairs = [(f"{starts}: full", f"{starts}: {other}") for starts in STARTS for other in others]
    return rows_of(scores, clusters) + differences(scores, pairs, clusters)


METHOD = Method(
    kind="study",
    name="skillmimic_v2",
    title="SkillMimic-V2",
    paper="arXiv 2505.02094",
    about="Learns skills from few noisy clips, which are joined where they are alike, and begins beside them",
    tags=("parametric", "experiential", "formation"),
    claim="Skills are kept from perturbed starts, and change into each other, where no clip shows that.",
    differs=(
        "A point in a plane in the place of a body with a ball, a network without a memory of the last 60 frames but in one arm, "
        "and masked frames by the square root of the distance, whose rule the paper's abstract does not tell."
    ),
    label="small",
    make=Study(run, "share of trials in which the asked skill is shown"),
)

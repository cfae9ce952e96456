"""The settings of runs: what all learners have, and what recurrent PPO and the off-policy learner add.

Reading them needs no PyTorch."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import Any

from keepworth.base.errors import KeepworthError

BONUSES = ("none", "e3b", "noveld", "both")
PREDICTIONS = ("none", "observation", "latent")
HIDDEN = ("zero", "stored", "burnt_in", "recomputed")
LEARNERS: dict[str, dict[str, Any]] = {
    "ddpg": {"critics": 1, "delay": 1, "noise": 0.1},
    "td3": {"critics": 2, "delay": 2, "noise": 0.1, "target_noise": 0.2},
    "sac": {"critics": 2, "delay": 1, "temperature": 0.2, "tune": True, "target_entropy": None, "conservative": 0.0},
    "iql": {"critics": 2, "delay": 1, "expectile": 0.7, "sharpness": 1.0},
}
"""The learners of `OffPolicySettings`, and the numbers of those of its settings that not all of them have. "bc" has none of them,
and is the one that learns from logs alone."""
CHOOSERS: dict[str, dict[str, Any]] = {
    "staq": {"critics": 2, "delay": 100, "temperature": 0.2, "stack": 20, "decay": 0.95},
}
"""The same of learners that only choose, and give no numbers."""
DETERMINISTIC = ("ddpg", "td3")
"""The learners that give numbers alone, and to these add noise while they play."""


class SettingError(KeepworthError, ValueError):
    """Settings of a learner do not fit one another."""


@dataclass(frozen=True)
class RunSettings:
    """Settings of a run of any learner.

    Attributes:
        world: A Gymnasium id.
        memory: A sequence memory's name.
        memory_settings: Settings of that memory.
        steps: Steps of all worlds together.
        seed: The seed of the network, the worlds and all draws.
        envs: Worlds that are stepped together.
        learning_rate: The rate of Adam.
        discount: Gamma.
        gradient_norm: The greatest norm of a gradient.
        width: The width of every layer and of the memory's output.
        encoder: Whether a layer precedes the memory.
        action_input: Whether the previous action and the start of an episode are inputs.
        reward_input: Whether the previous reward is an input.
        trial: Episodes of one task, over which the memory goes on; with more than one see `keepworth.control.trials`. Returns and
            lengths are then those of trials.
    """

    world: str = "popgym-RepeatPreviousEasy-v0"
    memory: str = "gru"
    memory_settings: dict[str, Any] = field(default_factory=dict)
    steps: int = 1_000_000
    seed: int = 0
    envs: int = 16
    learning_rate: float = 1e-3
    discount: float = 0.99
    gradient_norm: float = 0.5
    width: int = 128
    encoder: bool = True
    action_input: bool = True
    reward_input: bool = False
    trial: int = 1

    def __post_init__(self) -> None:
        self._require_counts("envs", "width", "trial")
        self._require_shares("discount")
        if not 0.0 < self.learning_rate < inf:
            raise SettingError(f"learning_rate = {self.learning_rate} is not above 0.", "Set it to 1e-3, for example.")

    def _require_counts(self, *names: str) -> None:
        for name in names:
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise SettingError(f"{name} = {getattr(self, name)} is less than 1.", f"Set {name} to 1 or more.")

    def _require_shares(self, *names: str) -> None:
        for name in names:
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise SettingError(f"{name} = {getattr(self, name)} is not in [0, 1].", f"Set {name} to such a number.")

    @property
    def updates(self) -> int:
        """The number of updates of the run, each a row of its curve."""
        raise NotImplementedError


@dataclass(frozen=True)
class PpoSettings(RunSettings):
    """Settings of a run of recurrent PPO: those of `RunSettings`, and these. Adam's epsilon is 1e-5.

    Attributes:
        rollout: Steps of a world between two updates.
        chunk: Steps that are learned as one sequence, from the stored state; it divides `rollout`.
        epochs: How often an update passes over its rollout.
        minibatches: Parts of a pass.
        trace: Lambda of generalised advantage estimation.
        clip: How far the ratio of probabilities may move from 1.
        entropy: Weight of the policy's entropy.
        value_weight: Weight of the squared error of values.
        bonus: "none", or a bonus for new observations: "e3b", "noveld" or "both"; see `keepworth.control.exploration`.
        bonus_weight: Weight of that bonus, which is added to the world's reward.
        predict: "none", or what the memory's output also learns to predict: "observation", the next one and the reward, or
            "latent", its own later outputs; see `keepworth.control.prediction`.
        predict_weight: Weight of that loss.
    """

    rollout: int = 128
    chunk: int = 128
    epochs: int = 4
    minibatches: int = 4
    trace: float = 0.95
    clip: float = 0.2
    entropy: float = 0.01
    value_weight: float = 0.5
    bonus: str = "none"
    bonus_weight: float = 0.1
    predict: str = "none"
    predict_weight: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, choices in (("bonus", BONUSES), ("predict", PREDICTIONS)):
            if getattr(self, name) not in choices:
                raise SettingError(
                    f"{name} = {getattr(self, name)!r} is none of {', '.join(choices)}.", f'Set {name} to "none".'
                )
        self._require_counts("steps", "rollout", "chunk", "epochs", "minibatches")
        self._require_shares("trace")
        if self.rollout % self.chunk:
            raise SettingError(
                f"chunk = {self.chunk} does not divide rollout = {self.rollout}.", f"Set chunk to {self.rollout}."
            )
        chunks = self.envs * self.rollout // self.chunk
        if self.envs * self.rollout < 2 * self.minibatches:
            raise SettingError(
                f"{self.envs * self.rollout} steps cannot make {self.minibatches} minibatches of two or more.",
                "Set rollout to more.",
            )
        if chunks < self.minibatches:
            raise SettingError(
                f"{chunks} chunks cannot make {self.minibatches} minibatches.", f"Set minibatches to {chunks} or less."
            )

    @property
    def updates(self) -> int:
        """The number of updates of the run."""
        return max(1, -(-self.steps // (self.envs * self.rollout)))


@dataclass(frozen=True)
class OffPolicySettings(RunSettings):
    """Settings of a run of the off-policy learner: those of `RunSettings`, and these. A setting whose default is None has the
    learner's own number of `LEARNERS`, and stays None where the learner has no use for it.

    Attributes:
        learner: "ddpg", "td3" or "sac"; or what learns from logs without trusting values of actions that they do not have: "iql",
            or "bc", which imitates and needs no rewards; or "staq", which has no actor, and chooses by the critics of earlier
            updates.
        logged: Updates from logs before the first step of a world. With it `steps` may be 0, for a policy of logs alone.
        capacity: Rows that the replay keeps of what was played: a row per step, and one per episode that was cut off.
        batch: Sequences that are learned at once.
        length: Steps of a sequence.
        hidden: What the memory's state is before a sequence: "zero", the initial one; "stored", that of the step when it was
            played; "burnt_in", that after `burn_in` earlier steps, run anew without a gradient; "recomputed", that after all
            earlier steps of the episode, run anew.
        burn_in: Those earlier steps.
        warmup: Steps of all worlds before anything is learned of them. Their actions are drawn evenly from the action space;
            after updates from logs, they are those of the policy.
        ratio: Updates of the critics per step of a world.
        every: Steps of all worlds between two rows of the curve.
        critics: Critics, of which the least value counts.
        delay: Updates of the critics for one of the actor and the targets; of "staq" for one of the policy.
        stack: How many earlier critics the policy is made of.
        decay: How much less each earlier one of them counts than the one after it.
        noise: Standard deviation of the noise of actions while playing, where actions are within [-1, 1].
        target_noise: Standard deviation of the noise of the target's action, which is clipped to 2.5 of them.
        temperature: Weight of the policy's entropy, at first.
        tune: Whether the temperature follows `target_entropy`.
        target_entropy: Entropy that a tuned temperature keeps; by default minus the numbers of an action, and .98 of the greatest
            entropy where actions are choices.
        conservative: Weight, in updates from logs, of a loss that lowers the values of actions that were not done (CQL).
        expectile: Expectile of the values of actions that counts as the value of a state: .5 is the mean, 1 the greatest.
        sharpness: How much more an action is imitated whose advantage is as large as usual: exp(sharpness) times.
        tau: Part of the way that targets go at an update.
        n_step: Rewards that are summed before a value follows.
        shares: The share of each batch by source: "play", and the names of the logs. Without any, all windows are as likely.
        clone: Weight of the loss of behaviour cloning, beside that of the actor.
        clone_source: The source that is cloned; "" for all.
    """

    learner: str = "sac"
    logged: int = 0
    envs: int = 1
    learning_rate: float = 3e-4
    gradient_norm: float = 10.0
    capacity: int = 100_000
    batch: int = 32
    length: int = 32
    hidden: str = "zero"
    burn_in: int | None = None
    warmup: int = 1000
    ratio: float = 1.0
    every: int = 1000
    critics: int | None = None
    delay: int | None = None
    stack: int | None = None
    decay: float | None = None
    noise: float | None = None
    target_noise: float | None = None
    temperature: float | None = None
    tune: bool | None = None
    target_entropy: float | None = None
    conservative: float | None = None
    expectile: float | None = None
    sharpness: float | None = None
    tau: float = 0.005
    n_step: int = 1
    shares: dict[str, float] = field(default_factory=dict)
    clone: float = 0.0
    clone_source: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, choices, usual in (("learner", (*LEARNERS, *CHOOSERS, "bc"), "sac"), ("hidden", HIDDEN, "zero")):
            if getattr(self, name) not in choices:
                raise SettingError(
                    f"{name} = {getattr(self, name)!r} is none of {', '.join(choices)}.",
                    f"Set {name} to {usual!r}, for example.",
                )
        self._fill()
        self._require_counts("capacity", "batch", "length", "every", "n_step", "critics", "delay", "stack")
        self._require_shares("tau", *(name for name in ("expectile", "decay") if getattr(self, name) is not None))
        least_zero = ("steps", "logged", "warmup", "ratio", "burn_in", "noise", "target_noise", "temperature", "clone")
        for name in (*least_zero, "conservative", "sharpness"):
            if (getattr(self, name) or 0) < 0:
                raise SettingError(f"{name} = {getattr(self, name)} is less than 0.", f"Set {name} to 0 or more.")
        if self.every % self.envs:
            raise SettingError(
                f"every = {self.every} is no multiple of envs = {self.envs}.",
                f"Set every to {-(-self.every // self.envs) * self.envs}.",
            )
        if self.n_step > self.length:
            raise SettingError(
                f"n_step = {self.n_step} is more than length = {self.length}.", f"Set n_step to {self.length} or less."
            )
        if self.capacity // self.envs < self.length + 2:
            raise SettingError(
                f"capacity = {self.capacity} leaves each of {self.envs} worlds no sequence of {self.length} steps.",
                f"Set capacity to {self.envs * (self.length + 2)} or more.",
            )
        if not self.steps and not self.logged:
            raise SettingError(
                "steps = 0 and logged = 0 learn from no step.", "Set steps, or logged where there are logs."
            )
        if self.conservative and not self.logged:
            raise SettingError(
                "conservative has no effect without updates from logs.", "Set logged too, or leave it out."
            )
        if self.learner == "staq" and (self.hidden != "zero" or self.clone):
            raise SettingError("The learner 'staq' has no actor: clone and hidden have no effect.", "Leave them out.")
        if self.decay == 1.0:
            raise SettingError("decay = 1.0 lets all earlier critics count for ever.", "Set decay to less than 1.")
        if self.learner == "bc" and self.steps:
            raise SettingError(
                f"The learner 'bc' imitates logs, and steps = {self.steps} would let it imitate what it plays.",
                "Set steps to 0 and logged to the number of updates.",
            )
        if self.learner == "bc" and (self.clone or self.n_step > 1):
            raise SettingError("clone and n_step have no effect with learner = 'bc'.", "Leave them out.")
        if self.clone_source and not self.clone:
            raise SettingError("clone_source has no effect without clone.", "Set clone too, or leave it out.")
        wrong = [f"{name} = {share}" for name, share in self.shares.items() if not 0.0 <= share <= 1.0]
        if wrong or (self.shares and abs(sum(self.shares.values()) - 1.0) > 1e-6):
            raise SettingError(
                f"shares = {self.shares} are no shares: {wrong[0] if wrong else 'they do not add up to 1'}.",
                'Set shares to {"play": 0.5, "NAME": 0.5}, for example.',
            )

    def _fill(self) -> None:
        """Fills in the learner's own numbers, and refuses those for which it has no use."""
        every = {**LEARNERS, **CHOOSERS}
        usual = every.get(self.learner, {})
        for name in dict.fromkeys(name for numbers in every.values() for name in numbers):
            value = getattr(self, name)
            if name not in usual and value is not None:
                raise SettingError(f"{name} has no effect with learner = {self.learner!r}.", "Leave it out.")
            if value is None and name in usual:
                object.__setattr__(self, name, usual[name])
        if self.target_entropy is not None and not self.tune:
            raise SettingError("target_entropy has no effect without tune.", "Leave it out.")
        if self.hidden == "burnt_in":
            object.__setattr__(self, "burn_in", 16 if self.burn_in is None else self.burn_in)
        elif self.burn_in is not None:
            raise SettingError(f"burn_in has no effect with hidden = {self.hidden!r}.", 'Set hidden to "burnt_in".')

    @property
    def updates(self) -> int:
        """The number of rows of the curve."""
        return -(-self.logged // self.every) + -(-self.steps // self.every)

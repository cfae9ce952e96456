"""The off-policy learner: play into a replay, learn from sequences of it with DDPG's, TD3's or SAC's rule, over any memory.

    y_t = r_t + gamma (1 - terminated_t) V(h_{t+1})                          and the same over n steps
    DDPG  V(h) = Q'(h, pi'(h))                                           actor: -Q(h, pi(h))
    TD3   V(h) = min_i Q'_i(h, pi'(h) + clipped noise)                   actor: -Q_1(h, pi(h))
    SAC   V(h) = E_{a ~ pi} [min_i Q'_i(h, a) - alpha log pi(a | h)]     actor: E_{a ~ pi} [alpha log pi(a | h) - min_i Q_i(h, a)]
    IQL   V(h) = expectile of min_i Q'_i(h, a) over what was done        actor: -exp(sharpness (min_i Q'_i - V) / d) log pi(a | h)
    CQL   as SAC, and the critics' loss has + conservative (log sum_a exp Q(h, a) - Q(h, a done))
    StaQ  as SAC, but pi is no actor: softmax of earlier Q, see `keepworth.control.critics.StackedCritics`
    BC    no critics                                                     actor: -log pi(a | h)

In IQL, CQL and BC, which are for logs, a was done there: no value of another action is believed. d is the root of the mean
squared advantage, so that sharpness does not depend on the size of rewards; a weight is at most 100. h is what a memory made of
the history, of the actor or of the critics, which have a memory each; Q' and pi' are targets, which follow slowly. Each loss is
a mean over the steps of the batch.
Sources: Lillicrap et al., arXiv 1509.02971; Fujimoto et al., arXiv 1802.09477; Haarnoja et al., arXiv 1812.05905; for choices
Christodoulou, arXiv 1910.07207; IQL Kostrikov et al., arXiv 2110.06169; CQL Kumar et al., arXiv
2006.04779; with memories Heess et al., arXiv 1512.04455, and Yang and Nguyen, arXiv 2110.12628."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict
from typing import Any, cast

from keepworth.base.needs import needs_control

import torch
from gymnasium import spaces
from torch import Tensor, nn

from keepworth.base.errors import require_known
from keepworth.control.critics import Actor, Critics, History, StackedCritics
from keepworth.control.errors import SpaceError, WorldError
from keepworth.control.logs import Logs, MinariLogs, SpacesOf, count_rows, rows_of
from keepworth.control.memory_base import SequenceMemory, State
from keepworth.control.network import Carry, as_tensor, start_carry
from keepworth.control.ppo import Row, load_network
from keepworth.control.replay import PLAY, Columns, SequenceReplay, Windows, run_lead
from keepworth.control.settings import CHOOSERS, DETERMINISTIC, OffPolicySettings, SettingError
from keepworth.control.spaces import ActionSpace, BoundedActions
from keepworth.control.worlds import MakeWorld, Worlds

GREATEST_WEIGHT = 100.0
"""Of an action that IQL's actor imitates."""
DRAWN = 4
"""Actions that CQL draws evenly, and by the policy, for its sum over all actions."""


class OffPolicyTrainer:
    """A training run, with its networks, its replay, its worlds and their current states. `curve` has a row per `every` steps."""

    def __init__(self, settings: OffPolicySettings, world: MakeWorld | None = None, logs: Logs | None = None) -> None:
        """Makes the worlds, the networks and the replay.

        Args:
            settings: The settings of the run.
            world: Makes a world that has no Gymnasium id, or a `SpacesOf` where nothing is played.
            logs: By source, episodes that the replay holds from the beginning.

        Raises:
            SpaceError: The learner cannot give the actions of the world.
            SettingError: A share is of no source or gives it no sequence, or the replay is larger than the memory.
            WorldError: A log is not of the world.
        """
        self.settings, logs = settings, dict(logs or {})
        self.spaces = world.as_json() if isinstance(world, SpacesOf) else None
        if self.spaces and settings.steps:
            raise SettingError(
                f"steps = {settings.steps}, and there is no world to play.", "Name a world, or set steps to 0."
            )
        self.worlds = Worlds(world or settings.world, settings.envs, settings.seed, settings.trial)
        size, self.actions = self.worlds.observations.size, action_space(self.worlds.actions.space, settings)
        _check_sources(settings, logs, self.worlds)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(settings.seed)
            self.network = self.make_policy(size)
            self.critics = self.make_critics(size)
        self.target_network = deepcopy(self.network).requires_grad_(False)
        self.target_critics = deepcopy(self.critics).requires_grad_(False)
        self.log_temperature = torch.tensor(math.log(max(settings.temperature or 0.0, 1e-8)), requires_grad=True)
        self.optimisers = {
            name: torch.optim.Adam(parameters, settings.learning_rate, fused=True)
            for name, parameters in (
                ("actor", [weights for weights in self.network.parameters() if weights.requires_grad]),
                ("critics", list(self.critics.parameters())),
                ("temperature", [self.log_temperature]),
            )
            if parameters
        }
        self.draw = torch.Generator().manual_seed(settings.seed)
        self.curve: list[Row] = []
        self.recent: deque[float] = deque(maxlen=100)
        self.seconds, self.learned, self._due = 0.0, 0, 0.0
        self._features = torch.zeros(settings.envs, size) if self.spaces else as_tensor(self.worlds.reset())
        self._starts = torch.ones(settings.envs, dtype=torch.bool)
        self._carry: Carry = start_carry(self.network, settings.envs)
        self._critics_state = self.critics.memory.initial_state(settings.envs)
        per_world = settings.capacity // settings.envs
        rings = {PLAY: [per_world] * settings.envs}
        rings.update({source: [count_rows(source, episodes)] for source, episodes in logs.items()})
        self.replay = SequenceReplay(self._blank(), rings)
        self._learned_from = {*self.replay.columns} - {
            "features",
            "age",
            "rewards",
            *([] if settings.clone_source else ["source"]),
        }
        for ring, (source, episodes) in enumerate(logs.items(), settings.envs):
            for number, episode in enumerate(episodes):
                where, paid = f"Episode {number} of the log {source!r}", settings.learner != "bc"
                rows = rows_of(episode, where, self.worlds.observations, self.actions, paid=paid)
                self.replay.fill(ring, rows)

    def train(self) -> Iterator[Row]:
        """Learns from logs, plays and learns until all is done, and yields a row per `every` updates from logs or steps."""
        while len(self.curve) < self.settings.updates:
            yield self.update()

    def update(self) -> Row:
        """Makes `every` updates from logs, until there were as many as `logged` says; after that plays `every` steps, and learns
        after each as often as `ratio` says.

        Returns:
            A row: `steps` of all worlds so far; `updates` so far; `return`, the mean over the episodes that ended (None where
            none did), with the noise of playing, `episodes` and their mean `length`; `recent`, the mean return of the last
            hundred; `critic_loss`, `actor_loss`, `value`, the mean value of what was done, and `entropy`, means over the updates
            (None where there was none); `temperature`; `seconds` of work so far.
        """
        began = time.perf_counter()
        settings = self.settings
        returns: list[float] = []
        lengths: list[int] = []
        metrics: list[dict[str, float]] = []
        of_logs = -(-settings.logged // settings.every)
        played = (len(self.curve) - of_logs) * settings.every
        if played < 0:
            left = settings.logged - len(self.curve) * settings.every
            conservative = settings.conservative or 0.0
            metrics = [self._learn(self._shares_of_logs, conservative) for _ in range(min(settings.every, left))]
        else:
            for step in range(settings.every // settings.envs):
                warm = played + step * settings.envs < settings.warmup
                ended = self._play_step(even=warm and not settings.logged)
                returns += ended[0]
                lengths += ended[1]
                if played + (step + 1) * settings.envs > settings.warmup and self._can_learn():
                    self._due += settings.ratio * settings.envs
                    while self._due >= 1.0:
                        self._due -= 1.0
                        metrics.append(self._learn(settings.shares, 0.0))
        self.recent.extend(returns)
        self.seconds += time.perf_counter() - began
        names = ("critic_loss", "actor_loss", "value", "entropy")
        means = {name: _mean([metric[name] for metric in metrics if name in metric]) for name in names}
        for name, phrase in (("value", "The critics' values are"), ("actor_loss", "The actor's loss is")):
            mean = means[name]
            if mean is not None and not math.isfinite(mean):
                raise SettingError(f"{phrase} no longer finite.", f"Lower learning_rate = {settings.learning_rate:g}.")
        row: Row = {
            "steps": max(0, played + settings.every),
            "updates": self.learned,
            "return": _mean(returns),
            "recent": _mean(list(self.recent)),
            "episodes": len(returns),
            "length": _mean(lengths),
            **means,
            "temperature": self.temperature(),
            "seconds": round(self.seconds, 2),
        }
        self.curve.append(row)
        return row

    def make_policy(self, observation_size: int) -> Actor | StackedCritics:
        """Returns the policy, with fresh weights. A method may have its own. observation_size: features of an observation."""
        return make_actor(observation_size, self.actions, self.settings)

    def make_critics(self, observation_size: int) -> Critics:
        """Returns the critics, with fresh weights. A method may have its own. observation_size: features of an observation."""
        return Critics(observation_size, self.actions, self.settings)

    def rewards(self, rows: Tensor) -> Tensor:
        """Returns the rewards that the critics learn of rows of the replay. A method may have its own."""
        return self.replay.columns["rewards"][rows]

    def temperature(self) -> float | None:
        if self.settings.temperature is None:
            return None
        return float(self.log_temperature.detach().exp()) if self.settings.tune else self.settings.temperature

    @property
    def _shares_of_logs(self) -> dict[str, float]:
        """The shares of the logs alone; empty where none are set, as each sequence is equally likely then."""
        shares = {source: share for source, share in self.settings.shares.items() if source != PLAY and share}
        return {source: share / sum(shares.values()) for source, share in shares.items()}

    def _can_learn(self) -> bool:
        length, shares = self.settings.length, self.settings.shares
        if shares:
            return all(self.replay.count(source, length) for source, share in shares.items() if share)
        return bool(self.replay.windows(length).sum())

    @torch.no_grad()
    def _play_step(self, even: bool) -> tuple[list[float], list[int]]:
        """Steps all worlds, with actions that are drawn evenly from the space or by the policy, and writes to the replay."""
        settings, network = self.settings, self.network
        state, action, reward = self._carry
        before, critics_before = state, self._critics_state
        x = network.input(self._features, action, reward, self._starts)
        outputs, _, state = network.step(x, state, self._starts)
        if settings.hidden == "stored":
            _, self._critics_state = self.critics.memory.step(
                self.critics.encoder(x), self._critics_state, self._starts
            )
        action = _draw_evenly(self.actions, settings.envs, self.draw) if even else self._act(outputs)
        stepped = self.worlds.step(self.actions.to_world(action))
        reward = torch.from_numpy(stepped.rewards)
        ends = torch.from_numpy(stepped.terminated | stepped.truncated)
        self.replay.write(
            range(settings.envs),
            {
                "features": self._features,
                "starts": self._starts,
                "actions": action,
                "rewards": reward,
                "terminated": torch.from_numpy(stepped.terminated),
                "valid": torch.ones(settings.envs, dtype=torch.bool),
                **self._stored(before, critics_before),
            },
        )
        if stepped.finals:  # the last observation of an episode that was cut off, and no step
            cut = torch.tensor(list(stepped.finals))
            last = {name: row.expand(len(cut), *row.shape[1:]) for name, row in self._blank().items()}
            last["features"] = torch.stack([as_tensor(features) for features in stepped.finals.values()])
            last.update({name: part[cut] for name, part in self._stored(state, self._critics_state).items()})
            self.replay.write(cut.tolist(), last)
        self._features, self._starts = as_tensor(stepped.features), ends
        self._carry = state, action, reward
        return stepped.returns, stepped.lengths

    def _act(self, outputs: Tensor) -> Tensor:
        return self.actions.sample(outputs, self.network.log_std, self.draw)

    def _blank(self) -> Columns:
        """Returns a row that is no step."""
        actions = self.actions
        none = torch.zeros(1, dtype=torch.bool)
        blank = {
            "features": torch.zeros(1, self.worlds.observations.size),
            "starts": none,
            "actions": torch.zeros(1, actions.parts, dtype=torch.long if actions.categorical else torch.float32),
            "rewards": torch.zeros(1),
            "terminated": none,
            "valid": none,
        }
        states = self.network.memory.initial_state(1), self.critics.memory.initial_state(1)
        return {**blank, **{name: part.detach() for name, part in self._stored(*states).items()}}

    def _stored(self, state: State, critics_state: State) -> Columns:
        """Returns the columns of the memories' states, where the replay stores them."""
        if self.settings.hidden != "stored":
            return {}
        named = {f"actor {i}": part for i, part in enumerate(state)}
        return named | {f"critics {i}": part for i, part in enumerate(critics_state)}

    def _learn(self, shares: Mapping[str, float], conservative: float) -> dict[str, float]:
        """Takes an optimiser step of the critics, and every `delay` updates one of the actor; returns metrics. A learner that
        only imitates has no critics. shares: of the sources; conservative: the coefficient of CQL's loss, 0 for none."""
        settings, windows = self.settings, self.draw_windows(shares)
        # Features are many, and are read by the networks' inputs alone.
        batch = {
            name: column[windows.rows] for name, column in self.replay.columns.items() if name in self._learned_from
        }
        x, starts = self._inputs(windows.rows, windows.before), batch["starts"]
        valid = batch["valid"][:, :-1].float()
        count = valid.sum().clamp(min=1.0)
        stacked = isinstance(self.network, StackedCritics)
        # An actor steps in the first of `delay` updates; critics that are kept are copied after the last.
        updates_actor = (self.learned + int(stacked)) % (settings.delay or 1) == 0
        self.learned += 1
        if settings.learner == "bc":
            outputs = self.network(x, self._state(self.network, windows, batch), starts)[:, :-1]
            loss = -(self._log_prob(outputs, batch["actions"][:, :-1]) * valid).sum() / count
            self._step("actor", loss, self.network.parameters())
            return {"actor_loss": loss.item()}

        memories = self.critics.remember(x, self._state(self.critics, windows, batch), starts)
        with torch.no_grad():
            state = self._state(self.target_critics, windows, batch)
            target_memories = self.target_critics.remember(x, state, starts)
        has_target_actor = settings.learner in DETERMINISTIC
        outputs = None
        if updates_actor or not has_target_actor:
            outputs = self.network(x, self._state(self.network, windows, batch), starts)
        with torch.no_grad():
            if has_target_actor:
                state = self._state(self.target_network, windows, batch)
                following = self._values_by_target(self.target_network(x, state, starts), target_memories)
            elif settings.learner == "iql":
                following = self.critics.state_values(memories)
            else:
                assert outputs is not None
                following = self._soft_values(outputs.detach(), target_memories)[0]
            paid = self.rewards(windows.rows)[:, :-1]
            returns = multi_step(
                paid,
                following[:, 1:],
                ~batch["terminated"][:, :-1],
                batch["valid"][:, 1:] & ~starts[:, 1:],
                settings.discount,
                settings.n_step,
            )
        taken = batch["actions"][:, :-1]
        values = self.critics.values(memories[:, :-1], taken)
        critic_loss = ((values - returns).square() * valid).sum() / count
        metrics = {"critic_loss": critic_loss.item(), "value": float((values.detach() * valid).mean(0).sum() / count)}
        advantages = None
        if settings.learner == "iql":
            with torch.no_grad():
                by_target = self.target_critics.values(target_memories[:, :-1], taken).amin(0)
            advantages = by_target - self.critics.state_values(memories[:, :-1])
            expectile = settings.expectile or 0.0
            weights = torch.where(advantages > 0, expectile, 1.0 - expectile)
            critic_loss = critic_loss + (weights * advantages.square() * valid).sum() / count
        if conservative:
            assert outputs is not None
            excess = self._sum_over_actions(memories[:, :-1], outputs[:, :-1].detach()) - values
            critic_loss = critic_loss + conservative * (excess * valid).sum() / count
        further = self.further_loss(memories, batch, paid, valid)
        if further is not None:
            critic_loss = critic_loss + further
        if updates_actor and not stacked:
            assert outputs is not None
            batch["features"] = self.replay.columns["features"][
                windows.rows
            ]  # for methods with an actor's loss of their own
            loss, entropy = self.actor_loss(outputs[:, :-1], memories[:, :-1].detach(), batch, valid, advantages)
            metrics |= self._step_actor(loss, entropy)
        self._step("critics", critic_loss, self.critics.parameters())
        if isinstance(self.network, StackedCritics) and updates_actor:
            self.network.add(self.critics)
        if updates_actor or stacked:
            _follow(self.target_critics, self.critics, settings.tau)
            if has_target_actor:
                _follow(self.target_network, self.network, settings.tau)
        return metrics

    def _step_actor(self, loss: Tensor, entropy: Tensor | None) -> dict[str, float]:
        """Takes an optimiser step of the actor, and of the temperature where that is tuned; returns metrics."""
        settings, metrics = self.settings, {"actor_loss": loss.item()}
        if entropy is not None:
            metrics["entropy"] = float(entropy)
            if settings.tune:
                goal = settings.target_entropy
                error = entropy - (usual_entropy(self.actions) if goal is None else goal)
                self._step("temperature", self.log_temperature * error, [self.log_temperature])
        self._step("actor", loss, self.network.parameters())
        return metrics

    def draw_windows(self, shares: Mapping[str, float]) -> Windows:
        """Draws windows of the replay, with the rows before them that the memory's state needs. shares: of the sources."""
        settings = self.settings
        lead = {"burnt_in": settings.burn_in or 0, "recomputed": settings.capacity}.get(settings.hidden, 0)
        return self.replay.draw(settings.batch, settings.length, lead, shares, self.draw)

    def _inputs(self, rows: Tensor, before: Tensor) -> Tensor:
        """Returns the networks' inputs at rows of the replay. The networks have the same."""
        columns = self.replay.columns
        taken, paid = columns["actions"][before], columns["rewards"][before]
        return self.network.input(columns["features"][rows], taken, paid, columns["starts"][rows])

    def _state(self, network: History | StackedCritics, windows: Windows, batch: Columns) -> State:
        """Returns the state of a network's memory before the windows, by the rule that the settings name.

        Args:
            network: The network, or its target.
            windows: The windows.
            batch: Their columns.
        """
        if self.settings.hidden == "stored":
            name = "actor" if isinstance(network, Actor) else "critics"
            return tuple(batch[f"{name} {i}"][:, 0] for i in range(len(network.memory.initial_state(1))))
        with torch.no_grad():
            inputs = network.encoder(self._inputs(windows.lead, windows.lead_before))
        return run_lead(
            cast(SequenceMemory, network.memory), inputs, self.replay.columns["starts"][windows.lead], windows.lead_mask
        )

    def _values_by_target(self, outputs: Tensor, memories: Tensor) -> Tensor:
        """Returns the values of the target's action, with TD3's noise where the settings have it."""
        action = self.actions.best(outputs)
        if self.settings.target_noise:
            noise = torch.randn(action.shape, generator=self.draw) * self.settings.target_noise
            limit = 2.5 * self.settings.target_noise
            action = (action + noise.clamp(-limit, limit)).clamp(-1.0, 1.0)
        return self.target_critics.values(memories, action).amin(0)

    def _soft_values(self, outputs: Tensor, memories: Tensor) -> tuple[Tensor, Tensor]:
        """Returns SAC's values by the target critics, and the log-probabilities in them."""
        temperature = self.temperature() or 0.0
        if self.actions.categorical:
            logs = outputs.log_softmax(-1)
            values = self.target_critics.all_values(memories).amin(0)
            return (logs.exp() * (values - temperature * logs)).sum(-1), logs
        action, log_prob = cast(BoundedActions, self.actions).draw(outputs, self.draw)
        return self.target_critics.values(memories, action).amin(0) - temperature * log_prob, log_prob

    def _log_prob(self, outputs: Tensor, done: Tensor) -> Tensor:
        """Returns the policy's log-probabilities of what was done, [...]."""
        if self.actions.categorical:
            return outputs.log_softmax(-1).gather(-1, done).squeeze(-1)
        return cast(BoundedActions, self.actions).log_prob(outputs, done)

    def _sum_over_actions(self, memories: Tensor, outputs: Tensor) -> Tensor:
        """Returns log sum_a exp Q(h, a), [critics, ...]; of numbers by drawing actions evenly and by the policy."""
        if self.actions.categorical:
            return self.critics.all_values(memories).logsumexp(-1)
        actions, shape = cast(BoundedActions, self.actions), (DRAWN, *outputs.shape[:-1])
        even = torch.rand(*shape, actions.parts, generator=self.draw) * 2.0 - 1.0
        drawn, log_prob = actions.draw(outputs.expand(DRAWN, *outputs.shape), self.draw)
        every = torch.cat([even, drawn])
        density = torch.cat([torch.full(shape, -math.log(2.0) * actions.parts), log_prob])
        values = self.critics.values(memories.expand(len(every), *memories.shape), every)
        return (values - density).logsumexp(1) - math.log(len(every))

    def further_loss(self, memories: Tensor, batch: Columns, rewards: Tensor, valid: Tensor) -> Tensor | None:
        """Returns what is added to the critics' loss; None for nothing. A method may have its own.

        Args:
            memories: What the critics' heads see of the windows, [batch, time + 1, ...], with a gradient.
            batch: The windows' columns.
            rewards: The rewards of their steps, [batch, time].
            valid: Which of the steps there are, [batch, time].
        """
        return None

    def actor_loss(
        self, outputs: Tensor, memories: Tensor, batch: Columns, valid: Tensor, advantages: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Returns the actor's loss, and the policy's mean entropy where it is stochastic. A method may have its own.

        Args:
            outputs: The policy's outputs at the windows' steps.
            memories: What the critics' heads see there.
            batch: The windows' columns.
            valid: Which of the steps there are.
            advantages: Of what was done, where the learner imitates it.
        """
        settings, count = self.settings, valid.sum().clamp(min=1.0)
        done = batch["actions"][:, :-1]
        entropy = None
        if advantages is not None:
            error = -self._log_prob(outputs, done)
            deviation = (advantages.detach().square() * valid).sum().div(count).sqrt().clamp(min=1e-6)
            exponent = (settings.sharpness or 0.0) * advantages.detach() / deviation
            loss = exponent.exp().clamp(max=GREATEST_WEIGHT) * error
        elif settings.learner in DETERMINISTIC:
            action = self.actions.best(outputs)
            loss = -self.critics.values(memories, action, frozen=True)[0]
            error = (action - done).square().mean(-1)
        elif self.actions.categorical:
            logs = outputs.log_softmax(-1)
            values = self.critics.all_values(memories).detach().amin(0)
            loss = (logs.exp() * ((self.temperature() or 0.0) * logs - values)).sum(-1)
            entropy = -(logs.exp() * logs).sum(-1).detach()
            error = -self._log_prob(outputs, done)
        else:
            actions = cast(BoundedActions, self.actions)
            action, log_prob = actions.draw(outputs, self.draw)
            loss = (self.temperature() or 0.0) * log_prob
            loss = loss - self.critics.values(memories, action, frozen=True).amin(0)
            entropy = -log_prob.detach()
            error = -self._log_prob(outputs, done)
        total = (loss * valid).sum() / count
        if settings.clone:
            cloned = valid
            if settings.clone_source:
                number = self.replay.sources.index(settings.clone_source)
                cloned = valid * (batch["source"][:, :-1] == number)
            total = total + settings.clone * (error * cloned).sum() / cloned.sum().clamp(min=1.0)
        return total, None if entropy is None else (entropy * valid).sum() / count

    def _step(self, name: str, loss: Tensor, parameters: Any) -> None:
        self.optimisers[name].zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, self.settings.gradient_norm)
        self.optimisers[name].step()

    def save(self) -> dict[str, Any]:
        """Returns all that the next update depends on, the replay with it, as tensors, numbers and lists."""
        worlds = self.worlds.save()
        return {
            "settings": asdict(self.settings),
            "spaces": self.spaces,
            "network": self.network.state_dict(),
            "critics": self.critics.state_dict(),
            "targets": (self.target_network.state_dict(), self.target_critics.state_dict()),
            "log_temperature": self.log_temperature.detach(),
            "optimisers": {name: optimiser.state_dict() for name, optimiser in self.optimisers.items()},
            "draw": self.draw.get_state(),
            "curve": self.curve,
            "recent": list(self.recent),
            "counts": (self.seconds, self.learned, self._due),
            "place": (self._features, self._starts, self._carry, self._critics_state),
            "worlds": None if worlds is None else torch.frombuffer(bytearray(worlds), dtype=torch.uint8),
            "replay": self.replay.save(),
        }

    def load(self, saved: dict[str, Any]) -> None:
        """Continues from the result of `save`: exactly, or with new episodes where the worlds cannot be saved or another user
        saved them. Raises CheckpointError for a checkpoint of another memory, world or size."""
        load_network(self.network, saved, self.settings)
        self.critics.load_state_dict(saved["critics"])
        for target, weights in zip((self.target_network, self.target_critics), saved["targets"], strict=True):
            target.load_state_dict(weights)
        with torch.no_grad():
            self.log_temperature.copy_(saved["log_temperature"])
        for name, optimiser in self.optimisers.items():
            optimiser.load_state_dict(saved["optimisers"][name])
        self.draw.set_state(saved["draw"])
        self.curve = list(saved["curve"])
        self.recent.extend(saved["recent"])
        self.seconds, self.learned, self._due = saved["counts"]
        self.replay.load(saved["replay"])
        if saved["worlds"] is not None and self.worlds.load(saved["worlds"].numpy().tobytes()):
            self._features, self._starts, self._carry, self._critics_state = saved["place"]
        else:
            self.replay.cut()


def make_actor(observation_size: int, actions: ActionSpace, settings: OffPolicySettings) -> Actor | StackedCritics:
    """Returns the policy of a learner, with fresh weights.

    Args:
        observation_size: Features of an observation.
        actions: The actions of the learner.
        settings: The settings, which name the learner.
    """
    return (StackedCritics if settings.learner == "staq" else Actor)(observation_size, actions, settings)


def action_space(space: spaces.Space[Any], settings: OffPolicySettings) -> ActionSpace:
    """Returns the actions of a learner in a world.

    Args:
        space: The world's action space.
        settings: The settings, which name the learner.

    Raises:
        SpaceError: The learner cannot give such actions. The message names one that can.
    """
    if isinstance(space, spaces.Box):
        if settings.learner in CHOOSERS:
            raise SpaceError(
                f"The learner {settings.learner!r} chooses, and the actions of {settings.world} are numbers: {space}.",
                'Set learner to "sac" or "td3", which give numbers.',
            )
        return BoundedActions(space, settings.noise)
    if settings.learner in DETERMINISTIC:
        raise SpaceError(
            f"The learner {settings.learner!r} gives numbers, and the actions of {settings.world} are choices: {space}.",
            'Set learner to "sac" or "ppo", which choose.',
        )
    actions = ActionSpace(space)
    if actions.parts > 1:
        raise SpaceError(
            f"The learner {settings.learner!r} makes one choice at a time, and the actions of {settings.world} are "
            f"{actions.parts}: {space}.",
            'Set learner to "ppo", or wrap the world such that one choice stands for all.',
        )
    return actions


def usual_entropy(actions: ActionSpace) -> float:
    """Returns the entropy that a tuned temperature keeps: minus the numbers of an action (arXiv 1812.05905), or .98 of the
    greatest entropy of choices (arXiv 1910.07207)."""
    return 0.98 * math.log(actions.size) if actions.categorical else -float(actions.parts)


def multi_step(
    rewards: Tensor, following: Tensor, goes_on: Tensor, inside: Tensor, discount: float, steps: int
) -> Tensor:
    """Returns the discounted rewards of at most so many steps with the value after them, [batch, time].

    The sum ends early, with the value of where it ends, at the end of the window or of an episode. Later actions are taken as
    they were done, without a correction for the policy that has changed since.

    Args:
        rewards: [batch, time].
        following: The value of the next observation of each step, [batch, time].
        goes_on: Where an episode did not terminate with the step, [batch, time].
        inside: Whether the next row is a step of the same episode, [batch, time].
        discount: Gamma.
        steps: The greatest number of steps, n.
    """
    sums = rewards + discount * goes_on * following
    for _ in range(steps - 1):
        after = torch.where(inside[:, :-1], sums[:, 1:], following[:, :-1])
        sums = rewards + discount * goes_on * torch.cat([after, following[:, -1:]], 1)
    return sums


def _check_sources(settings: OffPolicySettings, logs: Logs, worlds: Worlds) -> None:
    sources = [PLAY, *logs]
    if PLAY in logs:
        raise SettingError(f"A log is named {PLAY!r}, which is what the learner plays.", "Give it another name.")
    empty = [source for source, episodes in logs.items() if not episodes]
    if empty:
        raise SettingError(f"The log {empty[0]!r} has no episode.", "Leave it out, or give its episodes.")
    for source in (*settings.shares, *filter(None, [settings.clone_source])):
        require_known("source of the replay", source, sources)
    for source, share in settings.shares.items():
        if 0.0 < share * settings.batch < 1.0:
            raise SettingError(
                f"A share of {share} for {source!r} gives it no sequence of a batch of {settings.batch}.",
                f"Set batch to {math.ceil(1 / share)} or more.",
            )
    if settings.logged and not logs:
        raise SettingError(
            f"logged = {settings.logged} learns from logs, and there are none.",
            "Give logs: --logs FOLDER, or logs={...}.",
        )
    for source, episodes in logs.items():
        if isinstance(episodes, MinariLogs):
            for space, of_world in (
                (episodes.observation_space, worlds.observations.space),
                (episodes.action_space, worlds.actions.space),
            ):
                if type(space) is not type(of_world) or space.shape != of_world.shape:
                    raise WorldError(
                        f"The log {source!r} has values of {space}, and the world {settings.world} of {of_world}.",
                        "Name the world that was logged, or none, to learn from the logs alone.",
                    )
    if logs and settings.hidden == "stored":
        raise SettingError("Logs store no hidden states.", 'Set hidden to "zero", "burnt_in" or "recomputed".')
    for source, episodes in logs.items():
        rows = sum(episodes.steps) if isinstance(episodes, MinariLogs) else sum(map(len, episodes))
        if rows <= settings.length:
            raise SettingError(
                f"The log {source!r} of {rows} steps has no sequence of {settings.length}.",
                f"Set length to {max(1, rows - 1)} or less.",
            )


def _draw_evenly(actions: ActionSpace, count: int, draw: torch.Generator) -> Tensor:
    if actions.categorical:
        return torch.randint(actions.size, (count, 1), generator=draw)
    return torch.rand(count, actions.parts, generator=draw) * 2.0 - 1.0


@torch.no_grad()
def _follow(target: nn.Module, source: nn.Module, tau: float) -> None:
    """Moves a target a part of the way to its source."""
    torch._foreach_lerp_(list(target.parameters()), list(source.parameters()), tau)


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None

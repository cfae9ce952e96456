"""What RA-DT is made of: sub-trajectories, the memory that finds them, the transformer that reads them, and what trains it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from keepworth.base.needs import needs_control

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize, scaled_dot_product_attention

from keepworth.control.errors import SpaceError
from keepworth.control.logs import Logs, SpacesOf, rows_of
from keepworth.control.network import as_tensor
from keepworth.control.ppo import Row
from keepworth.control.replay import Columns
from keepworth.control.settings import SettingError
from keepworth.control.spaces import ActionSpace, ObservationSpace
from keepworth.control.worlds import MakeWorld, maker

READS = ("own", "another", "shuffled")
"""What an agent reads while it plays: what it played of its task; as controls, what was played of another task, and what lies
under keys that were dealt out anew."""


class Index(Protocol):
    """Finds vectors by their cosine, within scopes."""

    def put(self, numbers: Sequence[int], scopes: Sequence[int], vectors: NDArray[np.float32]) -> None:
        """Adds unit rows.

        Args:
            numbers: The number of each row.
            scopes: Its scope.
            vectors: The rows, [how many, dimension].
        """

    def search(
        self, query: NDArray[np.float32], count: int, scope: int, allowed: NDArray[np.bool_] | None
    ) -> list[tuple[int, float]]:
        """Returns the best numbers with their cosines, best first.

        Args:
            query: [dimension].
            count: The most of them.
            scope: That of the rows.
            allowed: By number, whether it may be returned; None for all.
        """


@dataclass(frozen=True)
class RetrievalSettings:
    """Settings of a run of RA-DT.

    Attributes:
        context: Steps that the transformer sees, the current one among them, over the borders of episodes.
        size: Steps of a sub-trajectory, C.
        retrieve: Whether it also reads a sub-trajectory with what followed it.
        candidates: How many nearest ones are ranked, l.
        similar: Weight of similarity in that rank.
        worth: Weight, while it plays, of the rewards in what would be read.
        worth_learning: The same while it learns.
        near_copy: A greater cosine than this is a near copy, which is passed over while it learns.
        variety: Among how many best candidates chance decides while it learns.
        absent: The share of contexts that learn without a sub-trajectory, as the first episode of a task has none.
        updates: Steps of Adam.
        every: Updates between two rows of the curve.
        batch: Contexts that are learned at once.
        width, layers, heads: Of the transformer.
        keys: Features of a key.
        learning_rate: The rate of Adam.
        gradient_norm: The greatest norm of a gradient.
        temperature: Of the actions that are drawn while it plays.
        seed: The seed of the network and all draws.
    """

    context: int = 50
    size: int = 25
    retrieve: bool = True
    candidates: int = 50
    similar: float = 1.0
    worth: float = 1.0
    worth_learning: float = 0.0
    near_copy: float = 0.98
    variety: int = 4
    absent: float = 0.2
    updates: int = 1000
    every: int = 100
    batch: int = 64
    width: int = 64
    layers: int = 2
    heads: int = 4
    keys: int = 64
    learning_rate: float = 1e-3
    gradient_norm: float = 1.0
    temperature: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("size", "candidates", "variety", "updates", "every", "batch", "layers", "heads", "keys"):
            if getattr(self, name) < 1:
                raise SettingError(f"{name} = {getattr(self, name)} is less than 1.", f"Set {name} to 1 or more.")
        if self.context < self.size or self.context % self.size:
            raise SettingError(
                f"context = {self.context} is no multiple of size = {self.size}.",
                f"Set it to {2 * self.size}, for example.",
            )
        if self.width % self.heads:
            raise SettingError(
                f"width = {self.width} is no multiple of heads = {self.heads}.",
                f"Set it to {32 * self.heads}, for example.",
            )


def cut(rows: Columns, actions: ActionSpace, size: int) -> Columns:
    """Cuts an episode into sub-trajectories of `size` steps, the last one filled up with rows that are no step.

    Args:
        rows: What `keepworth.control.logs.rows_of` returned.
        actions: The world's actions.
        size: C.

    Returns:
        `tokens`: observation, action and reward before it, and 1 where the episode starts. `done`: the action. `reads`: the
        observation, its action and reward, and the rewards from there to the end of the episode. `paid`: the reward. `valid`:
        whether the row is a step. All are [sub-trajectories, size, ...].
    """
    rows = {name: of[rows["valid"]] for name, of in rows.items()}
    seen, reward = rows["features"], rows["rewards"].float().unsqueeze(1)
    done, begins = actions.describe(rows["actions"]), rows["starts"].unsqueeze(1).float()
    before = torch.cat([done, reward], 1).roll(1, 0) * (1.0 - begins)
    to_go = reward.flip(0).cumsum(0).flip(0)
    columns = {
        "tokens": torch.cat([seen, before, begins], 1),
        "done": rows["actions"][:, 0],
        "reads": torch.cat([seen, done, reward, to_go], 1),
        "paid": reward[:, 0],
        "valid": torch.ones(len(seen), dtype=torch.bool),
    }
    filling = -len(seen) % size
    return {
        name: torch.cat([of, of.new_zeros(filling, *of.shape[1:])]).unflatten(0, (-1, size))
        for name, of in columns.items()
    }


class Keys:
    """Keys of sub-trajectories without a network that learns: the mean over their steps of tanh(W [o; a; r]) with a fixed random
    W, as a unit vector."""

    def __init__(self, features: int, size: int) -> None:
        self.features = features
        self.weights = torch.randn(features, size, generator=torch.Generator().manual_seed(0))

    def __call__(self, reads: Tensor, valid: Tensor) -> NDArray[np.float32]:
        """Returns keys, [how many, size]. reads, valid: see `cut`."""
        hidden = (reads[..., : self.features] @ self.weights).tanh() * valid.unsqueeze(-1)
        keys: NDArray[np.float32] = normalize(hidden.sum(-2), dim=-1).numpy()
        return keys

    def of_first(self, tokens: Tensor, actions: int) -> NDArray[np.float32]:
        """Returns the key of what is seen at the start of an episode, [how many, size].

        Args:
            tokens: [how many, size, features]; see `cut`.
            actions: Features of an action, which are zero here, and so is the reward.
        """
        seen = tokens[:, :1, : self.features - actions - 1]
        none = seen.new_zeros(len(seen), 1, actions + 1)
        return self(torch.cat([seen, none], -1), torch.ones(len(seen), 1, dtype=torch.bool))


def rank(similarity: NDArray[Any], worth: NDArray[Any], weights: tuple[float, float]) -> NDArray[np.intp]:
    """Returns the order of candidates, best first, by the weighted sum of both, each scaled to [0, 1] over the candidates.

    Args:
        similarity: Their cosines with the query.
        worth: The rewards in what would be read.
        weights: Of similarity and of worth.
    """
    score = np.zeros(len(similarity))
    for weight, values in zip(weights, (similarity, worth), strict=True):
        spread = np.ptp(values) if len(values) else 0.0
        if spread > 0.0:
            score += weight * (values - values.min()) / spread
    return np.argsort(-score, kind="stable")


class SubTrajectories:
    """Sub-trajectories of many tasks, each found by its key, and read with the one that followed it in its episode."""

    def __init__(self, index: Index, keys: Keys, settings: RetrievalSettings) -> None:
        self.index, self.keys, self.settings = index, keys, settings
        self.columns: Columns = {}
        self.tasks, self.episodes = np.zeros(0, np.intp), np.zeros(0, np.intp)
        self.worth = np.zeros(0)

    def __len__(self) -> int:
        return len(self.tasks)

    def add(self, columns: Columns, task: int) -> None:
        """Adds the sub-trajectories of the next episode of a task. columns: see `cut`."""
        first, count = len(self), len(columns["valid"])
        held = self.columns or {name: of[:0] for name, of in columns.items()}
        self.columns = {name: torch.cat([held[name], of]) for name, of in columns.items()}
        self.tasks = np.append(self.tasks, np.full(count, task))
        self.episodes = np.append(self.episodes, np.full(count, int(self.episodes.max(initial=-1)) + 1))
        paid = columns["paid"].sum(1).numpy()
        self.worth = np.append(self.worth, paid + np.append(paid[1:], 0.0))
        keys = self.keys(columns["reads"], columns["valid"])
        self.index.put(range(first, first + count), [task] * count, keys)

    def find(
        self,
        query: NDArray[np.float32],
        task: int,
        worth: float,
        *,
        without: Sequence[int] = (),
        most: float = np.inf,
        shuffle: np.random.Generator | None = None,
    ) -> NDArray[np.intp]:
        """Returns the numbers of the candidates, best first.

        Args:
            query: A key.
            task: Whose sub-trajectories are candidates.
            worth: The weight of the rewards in what would be read.
            without: Episodes whose sub-trajectories are none.
            most: Those with a greater cosine are near copies, and none either.
            shuffle: Deals the cosines out anew among the candidates.
        """
        allowed = ~np.isin(self.episodes, list(without)) if len(without) else None
        count = self.settings.candidates
        while True:
            hits = self.index.search(query, count, task, allowed)
            near = [(number, cosine) for number, cosine in hits if cosine <= most]
            if len(near) >= self.settings.candidates or len(hits) < count:
                break
            count *= 2
        near = near[: self.settings.candidates]
        numbers = np.array([number for number, _ in near], np.intp)
        cosines = np.array([cosine for _, cosine in near])
        if shuffle is not None:
            cosines = shuffle.permutation(cosines)
        return numbers[rank(cosines, self.worth[numbers], (self.settings.similar, worth))]

    def read(self, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """Returns what is read, [how many, 2 size, ...], and which of it there is. A number of -1 reads nothing."""
        episodes = torch.from_numpy(self.episodes)
        after = (numbers + 1).clamp(max=len(self) - 1)
        goes_on = (episodes[after] == episodes[numbers]) & (after > numbers)
        places = torch.stack([numbers, after], 1)
        there = torch.stack([numbers >= 0, (numbers >= 0) & goes_on], 1)
        valid = self.columns["valid"][places] & there.unsqueeze(-1)
        return self.columns["reads"][places].flatten(1, 2), valid.flatten(1)


class Attention(nn.Module):
    """Attention with several heads. Where a query sees no row, its output is zero."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.rows = nn.Linear(width, width), nn.Linear(width, 2 * width)
        self.output = nn.Linear(width, width)

    def forward(self, x: Tensor, rows: Tensor, sees: Tensor) -> Tensor:
        """Returns [batch, time, width].

        Args:
            x: Queries, [batch, time, width].
            rows: [batch, rows, width].
            sees: Which rows each query sees, [batch, time or 1, rows].
        """
        query = self.query(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        key, value = self.rows(rows).unflatten(-1, (2, self.heads, -1)).permute(2, 0, 3, 1, 4)
        some = sees.any(-1, keepdim=True)
        read = scaled_dot_product_attention(query, key, value, attn_mask=(sees | ~some).unsqueeze(1))
        mixed: Tensor = self.output(read.transpose(1, 2).flatten(2)) * some
        return mixed


class RetrievalTransformer(nn.Module):
    """A causal transformer over steps, whose layers also attend to the sub-trajectory that was found."""

    def __init__(self, token: int, read: int, choices: int, settings: RetrievalSettings) -> None:
        super().__init__()
        width, heads, layers = settings.width, settings.heads, range(settings.layers)
        self.embed = nn.Linear(token, width)
        self.places = nn.Parameter(torch.randn(settings.context, width) * 0.02)
        self.attentions = nn.ModuleList(Attention(width, heads) for _ in layers)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3 * settings.layers + 1))
        self.mlps = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)) for _ in layers
        )
        self.policy = nn.Linear(width, choices)
        if settings.retrieve:
            self.embed_read = nn.Linear(read, width)
            self.read_places = nn.Parameter(torch.randn(2 * settings.size, width) * 0.02)
            self.readings = nn.ModuleList(Attention(width, heads) for _ in layers)

    def forward(self, tokens: Tensor, valid: Tensor, reads: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """Returns logits of the actions, [batch, context, choices].

        Args:
            tokens: [batch, context, features]; see `cut`.
            valid: Which of them are steps, [batch, context].
            reads: What `SubTrajectories.read` returned; None for nothing.
        """
        time = tokens.shape[1]
        causal = torch.ones(time, time, dtype=torch.bool).tril()
        sees = causal & (valid.unsqueeze(1) | torch.eye(time, dtype=torch.bool))
        x = self.embed(tokens) + self.places[-time:]
        rows = None if reads is None else self.embed_read(reads[0]) + self.read_places
        for layer, (attention, mlp) in enumerate(zip(self.attentions, self.mlps, strict=True)):
            y = self.norms[3 * layer](x)
            x = x + attention(y, y, sees)
            if rows is not None and reads is not None:
                x = x + self.readings[layer](self.norms[3 * layer + 1](x), rows, reads[1].unsqueeze(1))
            x = x + mlp(self.norms[3 * layer + 2](x))
        logits: Tensor = self.policy(self.norms[-1](x))
        return logits


class RetrievalTrainer:
    """Learns from logs of many tasks to act in a task by what was played of it. `curve` has a row per `every` updates."""

    def __init__(
        self,
        world: str | MakeWorld | SpacesOf,
        logs: Logs,
        make_index: Callable[[int], Index],
        settings: RetrievalSettings,
    ) -> None:
        """Cuts the logs, and finds what each of their sub-trajectories reads.

        Args:
            world: A Gymnasium id, or a function that makes a world, for its spaces.
            logs: By task, its episodes in the order in which they were played.
            make_index: Makes an index of vectors of a size.
            settings: The settings of the run.

        Raises:
            SpaceError: An action is more than one choice.
            SettingError: There is a single task, or a task has a single episode.
            WorldError: A log is not of the world.
        """
        self.settings, self.make_index = settings, make_index
        made = (world if callable(world) else maker(world))()
        self.observations, self.actions = ObservationSpace(made.observation_space), ActionSpace(made.action_space)
        if not self.actions.categorical or self.actions.parts > 1:
            raise SpaceError(
                f"RA-DT makes one choice at a time, and the actions are {made.action_space}.",
                "Wrap the world such that one choice stands for all.",
            )
        lone = [name for name, episodes in logs.items() if len(episodes) < 2]
        if lone or not logs:
            raise SettingError(
                f"The task {lone[0]!r} has a single episode." if lone else "There is no log.",
                "Give two or more episodes of each task: one is learned, another is read.",
            )
        read = self.observations.size + self.actions.features + 2
        self.keys = Keys(read - 1, settings.keys)
        self.memory = SubTrajectories(make_index(settings.keys), self.keys, settings)
        for task, (name, episodes) in enumerate(logs.items()):
            for number, episode in enumerate(episodes):
                rows = rows_of(episode, f"Episode {number} of the log {name!r}", self.observations, self.actions)
                self.memory.add(cut(rows, self.actions, settings.size), task)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(settings.seed)
            self.network = RetrievalTransformer(read, read, self.actions.size, settings)
        self.optimiser = torch.optim.Adam(self.network.parameters(), settings.learning_rate, fused=True)
        self.draw = torch.Generator().manual_seed(settings.seed)
        self.curve: list[Row] = []
        self.seconds, self.learned = 0.0, 0
        self.neighbours = self._neighbours() if settings.retrieve else torch.zeros(0, 0, dtype=torch.long)

    @property
    def _span(self) -> int:
        return self.settings.context // self.settings.size

    def _queries(self, columns: Columns, begins: NDArray[np.bool_]) -> NDArray[np.float32]:
        """Returns for each sub-trajectory the key of the one before it, or of its first observation where an episode begins."""
        keys = np.roll(self.keys(columns["reads"], columns["valid"]), 1, 0)
        keys[begins] = self.keys.of_first(columns["tokens"], self.actions.features)[begins]
        return keys

    def _neighbours(self) -> Tensor:
        """Returns for each sub-trajectory those that may be read while it is learned, best first, [how many, variety]; -1 for
        none. No episode of its context is among them."""
        memory, settings = self.memory, self.settings
        begins = np.append(True, memory.episodes[1:] != memory.episodes[:-1])
        nearest = np.full((len(memory), settings.variety), -1)
        for number, query in enumerate(self._queries(memory.columns, begins)):
            context = memory.episodes[max(0, number + 1 - self._span) : number + 1]
            task, worth = int(memory.tasks[number]), settings.worth_learning
            order = memory.find(query, task, worth, without=sorted(set(context)), most=settings.near_copy)
            nearest[number, : len(order)] = order[: settings.variety]
        return torch.from_numpy(nearest)

    def train(self) -> Iterator[Row]:
        """Learns until all updates are done, and yields a row per `every` of them."""
        while self.learned < self.settings.updates:
            yield self.update()

    def update(self) -> Row:
        """Learns `every` times.

        Returns:
            A row: `updates` so far; `loss`, the mean cross-entropy of what was done; `right`, the share of steps whose likeliest
            action was done; `seconds` of work so far.
        """
        began, losses = time.perf_counter(), list[tuple[float, float]]()
        for _ in range(min(self.settings.every, self.settings.updates - self.learned)):
            losses.append(self._learn())
        self.seconds += time.perf_counter() - began
        loss, right = np.mean(losses, axis=0).tolist()
        row: Row = {"updates": self.learned, "loss": loss, "right": right, "seconds": round(self.seconds, 2)}
        self.curve.append(row)
        return row

    def _learn(self) -> tuple[float, float]:
        settings, columns = self.settings, self.memory.columns
        tasks = torch.from_numpy(self.memory.tasks)
        last = torch.randint(len(tasks), (settings.batch,), generator=self.draw)
        places = last.unsqueeze(1) + torch.arange(1 - self._span, 1)
        same = (places >= 0) & (tasks[places.clamp(min=0)] == tasks[last].unsqueeze(1))
        places = places.clamp(min=0)
        valid = (columns["valid"][places] & same.unsqueeze(-1)).flatten(1)
        reads = None
        if settings.retrieve:
            which = torch.randint(settings.variety, (settings.batch,), generator=self.draw)
            absent = torch.rand(settings.batch, generator=self.draw) < settings.absent
            reads = self.memory.read(torch.where(absent, -1, self.neighbours[last, which]))
        logits = self.network(columns["tokens"][places].flatten(1, 2), valid, reads)[valid]
        done = columns["done"][places].flatten(1)[valid]
        loss = cross_entropy(logits, done)
        self.optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.network.parameters(), settings.gradient_norm)
        self.optimiser.step()
        self.learned += 1
        return loss.item(), float((logits.argmax(-1) == done).float().mean())

    def save(self) -> dict[str, Any]:
        """Returns all that the next update depends on, but for the logs."""
        return {
            "network": self.network.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "draw": self.draw.get_state(),
            "curve": self.curve,
            "counts": (self.seconds, self.learned),
        }

    def load(self, saved: Mapping[str, Any]) -> None:
        """Continues from the result of `save`, with the same logs and settings."""
        self.network.load_state_dict(saved["network"])
        self.optimiser.load_state_dict(saved["optimiser"])
        self.draw.set_state(saved["draw"])
        self.curve = list(saved["curve"])
        self.seconds, self.learned = saved["counts"]

    @torch.no_grad()
    def play(
        self, worlds: Sequence[gymnasium.Env[Any, Any]], episodes: int, *, reads: str = "own", seed: int = 0
    ) -> NDArray[np.float64]:
        """Plays several episodes of each of some tasks, with a memory that begins empty, and learns no weight.

        Args:
            worlds: A world for each task. World i is reset with seed + i before each of its episodes, so that its draws, and so
                its task, are the same in all of them.
            episodes: How many are played of each.
            reads: One of `READS`.
            seed: The seed of the first world and of the actions.

        Returns:
            Returns of the episodes, [tasks, episodes].
        """
        settings, count, span = self.settings, len(worlds), self._span
        memory = SubTrajectories(self.make_index(settings.keys), self.keys, settings)
        draw, shuffle = torch.Generator().manual_seed(seed), np.random.default_rng(seed)
        token = self.observations.size + self.actions.features + 2
        past = torch.zeros(count, span, settings.size, token)
        steps = torch.zeros(count, span, settings.size, dtype=torch.bool)
        returns = np.zeros((count, episodes))
        self.network.eval()
        for episode in range(episodes):
            logs = [list[Any]() for _ in worlds]
            seen = [world.reset(seed=seed + task)[0] for task, world in enumerate(worlds)]
            over, before = np.zeros(count, bool), torch.zeros(count, token - self.observations.size)
            before[:, -1] = 1.0
            reading, place = None, 0
            while not over.all():
                if place == 0:
                    reading = self._read(memory, logs, seen, reads, shuffle)
                    begun = torch.from_numpy(~over)
                    past[begun] = torch.cat([past[begun, 1:], torch.zeros_like(past[begun, :1])], 1)
                    steps[begun] = torch.cat([steps[begun, 1:], torch.zeros_like(steps[begun, :1])], 1)
                past[:, -1, place] = torch.cat([as_tensor(self.observations.encode(seen)), before], 1)
                steps[:, -1, place] = torch.from_numpy(~over)
                logits = self.network(past.flatten(1, 2), steps.flatten(1), reading)[:, place - settings.size]
                chosen = self.actions.sample(logits / settings.temperature, torch.zeros(0), draw)
                paid = torch.zeros(count, 1)
                for task, action in enumerate(self.actions.to_world(chosen)):
                    if over[task]:
                        continue
                    after, reward, ended, stopped, _ = worlds[task].step(action)
                    logs[task].append((seen[task], action, float(reward), after, ended))
                    seen[task], paid[task], over[task] = after, float(reward), ended or stopped
                    returns[task, episode] += float(reward)
                before = torch.cat([self.actions.describe(chosen), paid, torch.zeros(count, 1)], 1)
                place = (place + 1) % settings.size
            for task, log in enumerate(logs):
                rows = rows_of(log, f"Episode {episode} of world {task}", self.observations, self.actions)
                memory.add(cut(rows, self.actions, settings.size), task)
        return returns

    def _read(
        self,
        memory: SubTrajectories,
        logs: Sequence[Sequence[Any]],
        seen: Sequence[Any],
        reads: str,
        shuffle: np.random.Generator,
    ) -> tuple[Tensor, Tensor] | None:
        """Returns what is read for the next steps of each task; None where nothing is.

        Args:
            memory: What was played so far.
            logs: The current episode of each task so far.
            seen: The current observation of each task.
            reads: One of `READS`.
            shuffle: Deals out keys anew.
        """
        if not self.settings.retrieve or not len(memory):
            return None
        numbers = []
        for task, log in enumerate(logs):
            if log:
                rows = rows_of(log[-self.settings.size :], f"World {task}", self.observations, self.actions)
                columns = cut(rows, self.actions, self.settings.size)
                query = self.keys(columns["reads"], columns["valid"])
            else:
                first = as_tensor(self.observations.encode([seen[task]])).unsqueeze(1)
                query = self.keys.of_first(first, self.actions.features)
            scope = (task + 1) % len(logs) if reads == "another" else task
            order = memory.find(query[0], scope, self.settings.worth, shuffle=shuffle if reads == "shuffled" else None)
            numbers.append(int(order[0]) if len(order) else -1)
        return memory.read(torch.tensor(numbers))

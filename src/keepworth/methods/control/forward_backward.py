"""Forward-backward with memory: from logs without rewards a policy for any reward that is named afterwards.

    M(h, a, h'; z) = F(h, a, z) . B(h')                             how much more often than usual h' follows (h, a) under pi_z
    pi_z(h) = argmax_a F(h, a, z) . z                               so that for a reward r, z = E[r B(h')] is its best policy
    loss = 1/2 mean_{i != j} (M_ij - gamma M'_ij)^2 - mean_i M_ii   i: steps of the batch, j: what followed them
           + mean_{i != j} (B_i . B_j)^2 - 2 mean_i B_i . B_i       B is kept orthonormal

The sum over two heads of F; M' is the mean of their targets at the action of pi_z after step i. h is what a memory made of the
history: F and B have one each, and a memory that sees the last observation alone makes it the method without memory. Half of the
z are drawn evenly from a sphere of radius sqrt(d), half are B of the batch, scaled to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from keepworth.registry import Method

if TYPE_CHECKING:
    from torch import Tensor

    from keepworth.control.logs import Episode, Logs
    from keepworth.control.memory_base import State
    from keepworth.control.off_policy import OffPolicyTrainer
    from keepworth.control.settings import OffPolicySettings
    from keepworth.control.spaces import ActionSpace
    from keepworth.control.worlds import MakeWorld


def make(
    world: str | MakeWorld,
    memory: str = "gru",
    *,
    logs: Logs,
    updates: int = 10_000,
    size: int = 32,
    conservative: float = 0.0,
    **settings: Any,
) -> OffPolicyTrainer:
    """Returns a trainer whose `update` learns from logs, and whose `name_task` then says what is to be paid for.

    Args:
        world: A Gymnasium id, or a function that makes a world; `keepworth.control.logs.SpacesOf` where there is none. Its
            actions are choices.
        memory: A sequence memory's name; "mlp" for the method without memory.
        logs: By source, episodes, which need no rewards; `keepworth.control.logs.read_logs` opens a folder of them.
        updates: Updates from logs.
        size: Numbers of F, B and z, d.
        conservative: Weight of a loss that lowers the values of choices that the logs do not have.
        settings: As in `keepworth.control.settings.OffPolicySettings`, without learner and steps.

    Raises:
        SpaceError: Actions are numbers.
        SettingError: A size is no size, or a weight is below 0.
    """
    from copy import deepcopy

    import torch
    from torch import nn

    from keepworth.control.critics import Actor, Ensemble, History
    from keepworth.control.errors import SpaceError
    from keepworth.control.logs import as_batch
    from keepworth.control.network import as_tensor, layers
    from keepworth.control.off_policy import OffPolicyTrainer
    from keepworth.control.settings import OffPolicySettings, SettingError

    if size < 2:
        raise SettingError(f"size = {size} tells no two tasks apart.", "Set it to 2 or more.")
    if conservative < 0.0:
        raise SettingError(f"conservative = {conservative} is less than 0.", "Set it to 0 or more.")
    weight = conservative

    class Forward(Actor):
        """F, and the policy of the task that was named last."""

        task: Tensor

        def __init__(self, observation_size: int, actions: ActionSpace, chosen: OffPolicySettings) -> None:
            super().__init__(observation_size, actions, chosen)
            width = chosen.width
            self.policy = Ensemble(2, self.head_input + size, width, width, actions.size * size)
            self.register_buffer("task", torch.zeros(size))

        def all_forward(self, memories: Tensor, z: Tensor) -> Tensor:
            """Returns F of all choices, [2, ..., choices, d], of what heads see and z, [..., d]."""
            outputs: Tensor = self.policy(torch.cat([memories, z], -1))
            return outputs.unflatten(-1, (self.actions.size, size))

        def worth(self, memories: Tensor, z: Tensor) -> Tensor:
            """Returns F . z of all choices, [..., choices], the mean of both heads."""
            return (self.all_forward(memories, z).mean(0) * z.unsqueeze(-2)).sum(-1)

        def forward(self, x: Tensor, state: State, starts: Tensor) -> Tensor:
            memories = self.remember(x, state, starts)
            return self.worth(memories, self.task.expand(*memories.shape[:-1], -1))

        def step(self, x: Tensor, state: State, starts: Tensor) -> tuple[Tensor, Tensor, State]:
            y, state = self.memory.step(self.encoder(x), state, starts)
            memories = torch.cat([y, x[..., : self.observation_size]], -1)
            return self.worth(memories, self.task.expand(len(x), -1)), x.new_zeros(len(x)), state

    class Backward(History):
        """B."""

        def __init__(self, observation_size: int, actions: ActionSpace, chosen: OffPolicySettings) -> None:
            super().__init__(observation_size, actions, chosen)
            self.head = layers(self.head_input, chosen.width, chosen.width, size)

        def all_backward(self, x: Tensor, state: State, starts: Tensor) -> Tensor:
            """Returns B of each step, [batch, time, d]; see `History.remember`."""
            outputs: Tensor = self.head(self.remember(x, state, starts))
            return outputs

    class ForwardBackward(OffPolicyTrainer):
        """A learner of all tasks at once, from logs alone."""

        def __init__(self, chosen: OffPolicySettings, world: MakeWorld | None) -> None:
            super().__init__(chosen, world, logs)
            if not self.actions.categorical:
                raise SpaceError(f"Tasks are of choices, and the actions of {chosen.world} are numbers.", "Use iql.")
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(chosen.seed)
                self.backward = Backward(self.worlds.observations.size, self.actions, chosen)
            self.target_backward = deepcopy(self.backward).requires_grad_(False)
            self.optimisers["backward"] = torch.optim.Adam(self.backward.parameters(), chosen.learning_rate)

        def make_policy(self, observation_size: int) -> Actor:
            return Forward(observation_size, self.actions, self.settings)

        def _learn(self, shares: Mapping[str, float], conservative: float) -> dict[str, float]:
            assert isinstance(self.network, Forward)
            assert isinstance(self.target_network, Forward)
            chosen = self.settings
            windows = self.draw_windows(shares)
            columns, self.learned = self.replay.columns, self.learned + 1
            starts, done = columns["starts"][windows.rows], columns["actions"][windows.rows][:, :-1]
            there = columns["valid"][windows.rows][:, :-1] & ~columns["terminated"][windows.rows][:, :-1]
            x = self._inputs(windows.rows, windows.before)
            networks = (self.network, self.target_network, self.backward, self.target_backward)
            states = [self._state(of, windows, {}) for of in networks]
            after = self.backward.all_backward(x, states[2], starts)[:, 1:][there]
            z = draw_tasks(after.detach(), size, self.draw)
            memories = self.network.remember(x, states[0], starts)
            with torch.no_grad():
                seen = self.target_network.remember(x, states[1], starts)[:, 1:][there]
                action = self.target_network.worth(seen, z).argmax(-1)
                following = of_action(self.target_network.all_forward(seen, z), action).mean(0)
                target = following @ self.target_backward.all_backward(x, states[3], starts)[:, 1:][there].T
            every = self.network.all_forward(memories[:, :-1][there], z)
            ahead = of_action(every, done[there][:, 0])
            loss = sum(measure_loss(of @ after.T, target, chosen.discount) for of in ahead) + orthonormal_loss(after)
            if weight:
                loss = loss + weight * conservative_loss(every, ahead, z)
            self.optimisers["backward"].zero_grad()
            self._step("actor", loss, self.network.parameters())
            nn.utils.clip_grad_norm_(self.backward.parameters(), chosen.gradient_norm)
            self.optimisers["backward"].step()
            for followers, leaders in ((self.target_network, self.network), (self.target_backward, self.backward)):
                with torch.no_grad():
                    torch._foreach_lerp_(list(followers.parameters()), list(leaders.parameters()), chosen.tau)
            return {"actor_loss": loss.item()}

        @torch.no_grad()
        def name_task(self, labelled: Sequence[Episode]) -> Tensor:
            """Makes the policy that of a task, and returns its z. labelled: episodes with the task's rewards."""
            assert isinstance(self.network, Forward)
            rows = as_batch(labelled, "labelled", self.worlds.observations, self.actions)
            before = torch.cat([torch.zeros_like(rows["actions"][:, :1]), rows["actions"][:, :-1]], 1)
            x = self.backward.input(rows["features"], before, torch.zeros(rows["starts"].shape), rows["starts"])
            after = self.backward.all_backward(x, self.backward.memory.initial_state(len(x)), rows["starts"])
            total = torch.zeros(size)
            for number, episode in enumerate(labelled):
                paid = as_tensor(np_rewards(episode))[: after.shape[1] - 1]
                total += paid @ after[number, 1 : len(paid) + 1]
            self.network.task.copy_(on_sphere(total))
            return self.network.task

        def save(self) -> dict[str, Any]:
            return super().save() | {"backward": (self.backward.state_dict(), self.target_backward.state_dict())}

        def load(self, saved: dict[str, Any]) -> None:
            super().load(saved)
            self.backward.load_state_dict(saved["backward"][0])
            self.target_backward.load_state_dict(saved["backward"][1])

    name = f"made by {world!r}" if callable(world) else world
    asked = OffPolicySettings(name, memory, learner="bc", logged=updates, steps=0, **settings)
    return ForwardBackward(asked, world if callable(world) else None)


def np_rewards(episode: Episode) -> Any:
    """Returns the rewards of an episode but that of a step with which it terminated, after which no observation follows."""
    import numpy as np

    return np.array([step[2] for step in episode if not step[4]], np.float32)


def on_sphere(z: Tensor) -> Tensor:
    """Returns vectors scaled to a length of sqrt(d), [..., d]."""
    return z / z.norm(dim=-1, keepdim=True).clamp(min=1e-8) * z.shape[-1] ** 0.5


def draw_tasks(after: Tensor, size: int, draw: Any) -> Tensor:
    """Returns a z for each row: evenly from the sphere, or, of every second row, B of another row.

    Args:
        after: B of the rows, [rows, d].
        size: d.
        draw: The source of the random numbers.
    """
    import torch

    z = torch.randn(len(after), size, generator=draw)
    others = after[torch.randperm(len(after), generator=draw)]
    return on_sphere(torch.where((torch.arange(len(z)) % 2 == 0).unsqueeze(1), z, others))


def of_action(forward: Tensor, action: Tensor) -> Tensor:
    """Returns F of one choice of each row, [heads, rows, d].

    Args:
        forward: F of all choices, [heads, rows, choices, d].
        action: The choices, [rows].
    """
    place = action.view(1, -1, 1, 1).expand(len(forward), -1, 1, forward.shape[-1])
    return forward.gather(2, place).squeeze(2)


def measure_loss(measure: Tensor, target: Tensor, discount: float) -> Tensor:
    """Returns 1/2 mean_{i != j} (M_ij - gamma M'_ij)^2 - mean_i M_ii.

    Args:
        measure: M, [rows, rows].
        target: M', [rows, rows].
        discount: Gamma.
    """
    import torch

    apart = ~torch.eye(len(measure), dtype=torch.bool)
    return 0.5 * (measure - discount * target)[apart].square().mean() - measure.diag().mean()


def conservative_loss(every: Tensor, ahead: Tensor, z: Tensor) -> Tensor:
    """Returns the mean of log sum_a exp F(h, a, z) . z - F(h, a done, z) . z, summed over the heads.

    Args:
        every: F of all choices, [heads, rows, choices, d].
        ahead: F of what was done, [heads, rows, d].
        z: The tasks, [rows, d].
    """
    return ((every * z.unsqueeze(1)).sum(-1).logsumexp(-1) - (ahead * z).sum(-1)).sum(0).mean()


def orthonormal_loss(after: Tensor) -> Tensor:
    """Returns mean_{i != j} (B_i . B_j)^2 - 2 mean_i B_i . B_i. after: B, [rows, d]."""
    import torch

    products = after @ after.T
    return products[~torch.eye(len(after), dtype=torch.bool)].square().mean() - 2.0 * products.diag().mean()


METHOD = Method(
    kind="control_agent",
    name="forward_backward",
    title="Forward-backward with memory",
    about="Learns from logs without rewards a policy for every reward that is named afterwards, over histories",
    paper="arXiv 2506.15446",
    claim="Where states, rewards or dynamics are partly observed, forward-backward with memory exceeds the same without it.",
    differs=(
        "Actions are choices, and the policy takes the best of them instead of learning an actor. Histories are whole episodes "
        "or windows of them instead of the last 32 and 8 observations; targets are the mean of two heads."
    ),
    label="small",
    make=make,
    extra="control",
)

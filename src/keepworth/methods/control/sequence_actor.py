"""Sequence RL: an actor that decides seldom, for several steps at once, and is taught by a critic of single steps.

    a_t, .., a_{t+J-1} = pi(o_t)                                  a GRU that is unrolled, played without looking again
    s_0 = o_t,  s_{j+1} = s_j + m(s_j, a_{t+j})                   temporal recall: a model says what each action would meet
    actor: (1/J) sum_j [alpha log pi(a_{t+j} | o_t) - min_i Q_i(s_j, a_{t+j})]
    model: (s_{t+1} - s_t - m(s_t, a_t))^2 on the replay;  critics: as in SAC, by single steps

Gradients reach the actions, and not what the model says of later states. The model is not used to play. The decisions of a world
of period 1 are J times fewer, while its critic learns from every step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from keepworth.registry import Method

if TYPE_CHECKING:
    from torch import Tensor

    from keepworth.control.memory_base import State
    from keepworth.control.off_policy import OffPolicyTrainer
    from keepworth.control.replay import Columns
    from keepworth.control.worlds import MakeWorld

RECALLS = ("model", "none", "another")
"""Where a later action of a sequence is judged: at the state that the model says, at the one where the sequence was decided, or,
as a control, at that of another sequence."""


def make(world: str | MakeWorld, sequence: int = 4, *, recall: str = "model", **settings: Any) -> OffPolicyTrainer:
    """Returns a trainer for a world that shows its state, whose actor decides after every `sequence` steps.

    Args:
        world: A Gymnasium id, or a function that makes a world. Its actions are numbers.
        sequence: Steps of a decision, J.
        recall: One of `RECALLS`.
        settings: As in `keepworth.control.settings.OffPolicySettings`, without memory, learner and inputs.
    """
    import torch
    from torch import nn

    from keepworth.base.errors import require_known
    from keepworth.control.critics import Actor
    from keepworth.control.errors import SpaceError
    from keepworth.control.network import layers
    from keepworth.control.off_policy import OffPolicyTrainer
    from keepworth.control.settings import OffPolicySettings, SettingError
    from keepworth.control.spaces import ActionSpace, BoundedActions

    require_known("recall of a sequence", recall, RECALLS)
    if sequence < 2:
        raise SettingError(f"sequence = {sequence} decides for a single step.", "Set it to 2 or more, or use rsac.")

    class Plan(nn.Module):
        """What an actor of sequences keeps between steps: the outputs of its last decision, and how many were played."""

        context = reach = 1

        def __init__(self, size: int) -> None:
            super().__init__()
            self.size = size

        def initial_state(self, batch: int) -> State:
            """Returns the state in which a decision is due."""
            return torch.zeros(batch, sequence, self.size), torch.full((batch, 1), float(sequence))

    class SequenceActor(Actor):
        """input -> encoder -> no memory -> a GRU that is unrolled over the steps of a decision."""

        def __init__(self, observation_size: int, actions: ActionSpace, chosen: OffPolicySettings) -> None:
            super().__init__(observation_size, actions, chosen)
            features, self.memory = self.memory, Plan(actions.size)  # type: ignore[assignment]
            self.features = features
            self.first = layers(self.head_input, chosen.width)
            self.cell = nn.GRUCell(actions.parts, chosen.width)
            decoder = layers(chosen.width, chosen.width, actions.size)
            with torch.no_grad():
                for weight in decoder[-1].parameters():
                    weight.mul_(0.01)
            self.policy = decoder  # type: ignore[assignment]

        def plan(self, x: Tensor, steps: int = sequence) -> Tensor:
            """Returns the outputs of the first steps of decisions, [..., steps, actions.size]."""
            y, _ = self.features(self.encoder(x))
            state = self.first(torch.cat([y, x[..., : self.observation_size]], -1)).tanh().flatten(0, -2)
            action, outputs = state.new_zeros(len(state), self.actions.parts), []
            for _ in range(steps):
                state = self.cell(action, state)
                outputs.append(self.policy(state))
                action = outputs[-1][..., : self.actions.parts].tanh()
            return torch.stack(outputs, 1).unflatten(0, x.shape[:-1])

        def forward(self, x: Tensor, state: State, starts: Tensor) -> Tensor:
            return self.plan(x, 1).squeeze(-2)

        def step(self, x: Tensor, state: State, starts: Tensor) -> tuple[Tensor, Tensor, State]:
            plan, place = state
            due = starts.unsqueeze(1) | (place >= sequence)
            plan = torch.where(due.unsqueeze(-1), self.plan(x.unsqueeze(1)).squeeze(1), plan)
            place = torch.where(due, 0.0, place)
            at = place.long().unsqueeze(-1).expand(-1, 1, plan.shape[-1])
            return plan.gather(1, at).squeeze(1), x.new_zeros(len(x)), (plan, place + 1.0)

    class SequenceTrainer(OffPolicyTrainer):
        """SAC whose actor decides for several steps, which a model of the world recalls one by one for the critics."""

        def __init__(self, chosen: OffPolicySettings, world: MakeWorld | None) -> None:
            super().__init__(chosen, world)
            if not isinstance(self.actions, BoundedActions):
                raise SpaceError(
                    f"Sequences are of numbers, and the actions of {chosen.world} are choices: {self.worlds.actions.space}.",
                    "Use rsac.",
                )
            size = self.worlds.observations.size
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(chosen.seed)
                self.model = nn.Sequential(*layers(size + self.actions.parts, chosen.width, chosen.width, size))
            self.optimisers["model"] = torch.optim.Adam(self.model.parameters(), chosen.learning_rate)

        def make_policy(self, observation_size: int) -> Actor:
            return SequenceActor(observation_size, self.actions, self.settings)

        def actor_loss(
            self, outputs: Tensor, memories: Tensor, batch: Columns, valid: Tensor, advantages: Tensor | None
        ) -> tuple[Tensor, Tensor | None]:
            before, after, done = batch["features"][:, :-1], batch["features"][:, 1:], batch["actions"][:, :-1]
            goes_on = valid * ~batch["terminated"][:, :-1]
            error = (after - before - self.model(torch.cat([before, done], -1))).square().mean(-1)
            self._step("model", (error * goes_on).sum() / goes_on.sum().clamp(min=1.0), self.model.parameters())

            assert isinstance(self.network, SequenceActor)
            assert isinstance(self.actions, BoundedActions)
            actions, log_probs = self.actions.draw(self.network.plan(before), self.draw)
            with torch.no_grad():
                met = self._recall(before, actions)
                none = torch.zeros(met.shape[:-1], dtype=torch.bool)
                seen = self.critics.remember(met, self.critics.memory.initial_state(len(met)), none)
            values = self.critics.values(seen, actions, frozen=True).amin(0)
            loss = ((self.temperature() or 0.0) * log_probs - values).mean(-1)
            count = valid.sum().clamp(min=1.0)
            return (loss * valid).sum() / count, -(log_probs.detach().mean(-1) * valid).sum() / count

        def _recall(self, before: Tensor, actions: Tensor) -> Tensor:
            """Returns the state at which each action of sequences is judged, [..., steps, size]."""
            state, met = before, []
            for step in range(sequence):
                met.append(state)
                if recall == "model":
                    state = state + self.model(torch.cat([state, actions[..., step, :]], -1))
                elif recall == "another":
                    place = torch.randperm(state[..., 0].numel(), generator=self.draw)
                    state = before.flatten(0, -2)[place].view_as(before)
            return torch.stack(met, -2)

        def save(self) -> dict[str, Any]:
            return super().save() | {"model": self.model.state_dict()}

        def load(self, saved: dict[str, Any]) -> None:
            super().load(saved)
            self.model.load_state_dict(saved["model"])

    name = f"made by {world!r}" if callable(world) else world
    chosen = OffPolicySettings(name, "mlp", action_input=False, **settings)
    return SequenceTrainer(chosen, world if callable(world) else None)


METHOD = Method(
    kind="control_agent",
    name="sequence_rl",
    title="Sequence RL",
    about="Decides for several steps at once, and learns each of them by a critic of single steps and a model of the world",
    paper="arXiv 2410.08979",
    claim="At slow decisions it earns more than SAC that is as slow, and needs no model to play.",
    differs=(
        "Whether gradients pass through the model is not said in what we read: here they stop there. Observations show the "
        "state, and the decoder's inputs are the means of its earlier actions."
    ),
    label="small",
    make=make,
    extra="control",
)

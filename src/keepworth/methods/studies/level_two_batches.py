"""Mini-Diffuser: one look at a scene, many noised actions ("Mini Diffuser: fast multi-task diffusion policy training using
two-level mini-batches", arXiv 2505.09430).

A diffusion policy learns which noise was added to an action, from the noised action, its level t and what an encoder makes of the
scene. The scene is costly and the action small, so that each scene of a batch has k noised actions:

    loss = mean_b mean_{j < k} |noise_bj - f(encode(scene_b), sqrt(kept_t) a_b + sqrt(1 - kept_t) noise_bj, t_bj)|^2

Its expectation does not depend on k, and the variance of its gradient is V_scene + V_noise / k. No action sees another.

The scenes are images with three spots, and the action is the place of the brightest: two numbers. After every 20 updates the
loss is measured on other scenes with fixed noise. `time saved` is 1 minus the processor time of training until that loss falls
to `GOAL`, divided by that of k = 1; who does not come there within `UPDATES` has the time of all of them. `updates saved` is
the same of updates. Control: "16 copies", k = 16 with the same noise in each, which costs as much and adds no sample."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from keepworth.evaluation.study import Rows, Study, arms_of, differences, rows_of
from keepworth.registry import Method

if TYPE_CHECKING:
    from torch import Tensor

SIDE, SPOTS, LEVELS, BATCH, UPDATES, EVERY, GOAL = 24, 3, 50, 16, 2000, 20, 0.12
ARMS = {"k = 1": (1, False), "k = 4": (4, False), "k = 16": (16, False), "k = 64": (64, False), "16 copies": (16, True)}
"""By arm, the actions of a scene, and whether all have the same noise."""


def draw_scenes(count: int, draw: Any) -> tuple[Tensor, Tensor]:
    """Draws images, [count, 1, SIDE, SIDE], and the places of their brightest spots, [count, 2], within [-1, 1].

    Args:
        count: How many.
        draw: A generator of torch.
    """
    import torch

    places = 1.6 * torch.rand(count, SPOTS, 2, generator=draw) - 0.8
    bright = torch.tensor([1.0, 0.6, 0.4])
    axis = torch.linspace(-1.0, 1.0, SIDE)
    across, down = ((axis - places[..., of, None]).square() / 0.02 for of in range(2))
    spots = torch.exp(-across.unsqueeze(-1)) * torch.exp(-down.unsqueeze(-2))
    return (bright[:, None, None] * spots).sum(1, keepdim=True), places[:, 0]


def make_schedule() -> Tensor:
    """Returns how much of an action's variance each level keeps, [LEVELS]: the cosine schedule."""
    import torch

    return torch.cos(torch.linspace(0.02, 0.98, LEVELS) * torch.pi / 2).square()


def make_policy() -> Any:
    """Returns a policy with fresh weights: `encode` for scenes, and `forward` for noised actions."""
    import torch
    from torch import nn

    class Policy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encode = nn.Sequential(
                nn.Conv2d(1, 16, 5, 2, 2), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(), nn.Flatten(),
                nn.Linear(32 * 6 * 6, 64), nn.ReLU(),
            )  # fmt: skip
            self.level = nn.Embedding(LEVELS, 16)
            self.head = nn.Sequential(
                nn.Linear(64 + 2 + 16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2)
            )

        def forward(self, scene: Tensor, action: Tensor, level: Tensor) -> Tensor:
            wide = scene.unsqueeze(1).expand(-1, action.shape[1], -1)
            noise: Tensor = self.head(torch.cat([wide, action, self.level(level)], -1))
            return noise

    return Policy()


def diffusion_loss(policy: Any, scenes: Tensor, actions: Tensor, noise: Tensor, level: Tensor) -> Tensor:
    """Returns the loss over scenes and their noised actions.

    Args:
        policy: A network of `make_policy`.
        scenes: Images, [scenes, 1, SIDE, SIDE].
        actions: The right actions, [scenes, 2].
        noise: What is added to them, [scenes, k, 2].
        level: How much, [scenes, k].
    """
    share = make_schedule()[level].unsqueeze(-1)
    noised = share.sqrt() * actions.unsqueeze(1) + (1.0 - share).sqrt() * noise
    loss: Tensor = (policy(policy.encode(scenes), noised, level) - noise).square().mean()
    return loss


def draw_noise(scenes: int, actions: int, same: bool, draw: Any) -> tuple[Tensor, Tensor]:
    """Draws noise and levels for the actions of scenes, [scenes, actions, 2] and [scenes, actions].

    Args:
        scenes: How many scenes.
        actions: Of each scene.
        same: Whether all actions of a scene have the same.
        draw: A generator of torch.
    """
    import torch

    count = 1 if same else actions
    noise = torch.randn(scenes, count, 2, generator=draw)
    level = torch.randint(LEVELS, (scenes, count), generator=draw)
    return noise.expand(-1, actions, -1), level.expand(-1, actions)


@dataclass(frozen=True)
class Descent:
    """What a training took until its loss fell to `GOAL`."""

    seconds: float
    updates: int
    loss: float


def train_policy(arm: str, seed: int, updates: int) -> Descent:
    """Trains a policy until its loss on other scenes is low enough.

    Args:
        arm: One of `ARMS`.
        seed: Of the scenes, the noise and the weights.
        updates: The most updates.
    """
    import torch

    actions, same = ARMS[arm]
    fixed = torch.Generator().manual_seed(10_000 + seed)
    held_out, right = draw_scenes(256, fixed)
    measured = draw_noise(256, 16, False, fixed)
    draw, noise_draw = (torch.Generator().manual_seed(2 * seed + of) for of in range(2))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        policy = make_policy()
    optimiser = torch.optim.Adam(policy.parameters(), 1e-3)
    seconds, loss = 0.0, float("inf")
    for update in range(1, updates + 1):
        began = time.process_time()
        scenes, places = draw_scenes(BATCH, draw)
        optimiser.zero_grad()
        torch.autograd.backward(diffusion_loss(policy, scenes, places, *draw_noise(BATCH, actions, same, noise_draw)))
        optimiser.step()
        seconds += time.process_time() - began
        if update % EVERY == 0:
            with torch.no_grad():
                loss = float(diffusion_loss(policy, held_out, right, *measured))
            if loss <= GOAL:
                return Descent(seconds, update, loss)
    return Descent(seconds, updates, loss)


def run(*, seeds: int = 5, updates: int = UPDATES, first_seed: int = 0) -> Rows:
    """Measures the processor time and the updates until all have the same loss.

    Args:
        seeds: Trainings of each arm.
        updates: The most updates of a training.
        first_seed: The first of the seeds.
    """

    def measure(seed: int) -> dict[str, float]:
        trained = {arm: train_policy(arm, seed, updates) for arm in ARMS}
        plain = trained["k = 1"]
        saved = {f"time saved: {arm}": 1.0 - of.seconds / plain.seconds for arm, of in trained.items()}
        saved |= {f"updates saved: {arm}": 1.0 - of.updates / plain.updates for arm, of in trained.items()}
        return saved | {f"loss: {arm}": of.loss for arm, of in trained.items()}

    scores = arms_of(measure(seed) for seed in range(first_seed, first_seed + seeds))
    clusters = [str(seed) for seed in range(seeds)]
    pairs = [
        (f"{score}: k = 16", f"{score}: {other}")
        for score in ("time saved", "updates saved")
        for other in ("k = 1", "k = 64", "16 copies")
    ]
    return rows_of(scores, clusters, None) + differences(scores, pairs, clusters, None)


METHOD = Method(
    kind="study",
    name="mini_diffuser",
    title="Mini-Diffuser",
    paper="arXiv 2505.09430",
    about="Trains a diffusion policy with many noised actions for each scene that is encoded",
    tags=("parametric", "experiential", "formation"),
    claim="A policy has .95 of the success of a comparable one after .05 of the time and with .07 of the memory.",
    differs=(
        "Three spots and an action of two numbers in the place of a robot's arm, convolutions in the place of a transformer; the "
        "time to the same loss is measured, and no success or memory."
    ),
    label="small",
    make=Study(run, "share of time, or of updates, that is saved beside k = 1"),
)

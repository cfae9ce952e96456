"""The learner against a second implementation, written from the papers with nothing of ours in it.

Left-padded prompts, right-padded completions, one [B, T] matrix of logits, the loss spelled out; float32, 20 steps of SGD on
the same completions, two steps a batch, so that ratios leave 1 and the clip acts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch

from keepworth.methods.objectives.cispo import Cispo
from keepworth.records import FinishReason, Group, RewardTerm, Segment
from keepworth.training.objective.parts import Clip, GroupStd, KlLoss, Outcome
from keepworth.training.objective.presets import preset
from tests.episode_of import episode_of
from tests.learning.turns import ROLE, descend_plainly, learner_of
from tests.models.tiny import tiny_network

RATE, LONGEST, BATCHES = 0.02, 6, 10
PROMPTS = ((5, 9, 11), (40, 2, 3, 8, 13))
NARROW = {"surrogate": Clip(0.01, 0.02)}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "grpo": ("grpo", {"kl": KlLoss("k3", 0.05), **NARROW}),
    "dr_grpo": ("dr_grpo", {"length_budget": LONGEST, **NARROW}),
    "token-mean": ("lite_ppo", {"advantage": Outcome("group", GroupStd()), **NARROW}),
    "lite_ppo": ("lite_ppo", NARROW),
    "rloo": ("rloo", {}),
    "gspo": ("gspo", {}),
    "cispo": ("cispo", {"surrogate": Cispo(1.0, 0.02)}),
}


@dataclass(frozen=True)
class Data:
    """completions[batch][prompt][member], rewards alike."""

    completions: list[list[list[tuple[int, ...]]]]
    rewards: list[torch.Tensor]


def data() -> Data:
    generator = torch.Generator().manual_seed(0)
    completions, rewards = [], []
    for _ in range(BATCHES):
        lengths = torch.randint(1, LONGEST + 1, (len(PROMPTS), 4), generator=generator).tolist()
        completions.append(
            [[tuple(torch.randint(0, 257, (n,), generator=generator).tolist()) for n in row] for row in lengths]
        )
        rewards.append(torch.rand(len(PROMPTS), 4, generator=generator))
    return Data(completions, rewards)


def padded(batch: list[list[tuple[int, ...]]]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """ids [B, P + T], attention mask alike, completion mask [B, T]."""
    wide = max(map(len, PROMPTS))
    ids, seen, drawn = [], [], []
    for prompt, group in zip(PROMPTS, batch, strict=True):
        for completion in group:
            left, right = wide - len(prompt), LONGEST - len(completion)
            ids.append([0] * left + list(prompt) + list(completion) + [0] * right)
            seen.append([0] * left + [1] * (len(prompt) + len(completion)) + [0] * right)
            drawn.append([1] * len(completion) + [0] * right)
    return torch.tensor(ids), torch.tensor(seen), torch.tensor(drawn, dtype=torch.float32)


def logprobs(network: Any, ids: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
    positions = (seen.cumsum(1) - 1).clamp(min=0)
    logits = network(input_ids=ids, attention_mask=seen, position_ids=positions).logits[:, -LONGEST - 1 : -1]
    return torch.log_softmax(logits, -1).gather(2, ids[:, -LONGEST:, None])[..., 0]


def written_out(
    case: str, lp: torch.Tensor, old: torch.Tensor, ref: torch.Tensor, rewards: Any, m: Any
) -> torch.Tensor:
    """The loss as the papers have it. lp, old, ref, m [B, T]; rewards [prompts, members]."""
    centred = rewards - rewards.mean(1, keepdim=True)
    each = rewards.std(1, keepdim=True) + 1e-6
    count, length = len(m), m.sum(1)
    if case == "rloo":  # A = R - mean of the others; the sequence's log-probability is one action
        advantage = (centred * 4 / 3).flatten()
        return -(advantage * (lp * m).sum(1)).mean()
    scaled = {"dr_grpo": centred, "lite_ppo": centred / (rewards.std() + 1e-6)}.get(case, centred / each)
    a = scaled.flatten()[:, None]
    ratio = (lp - old).exp()
    if case == "gspo":
        ratio = (((lp - old) * m).sum(1) / length).exp()[:, None].expand_as(lp)
        term = torch.min(ratio * a, ratio.clamp(1 - 3e-4, 1 + 4e-4) * a)
    elif case == "cispo":
        term = ratio.clamp(max=1.02).detach() * a * lp
    else:
        term = torch.min(ratio * a, ratio.clamp(0.99, 1.02) * a)
    if case == "grpo":
        term = term - 0.05 * ((ref - lp).exp() - (ref - lp) - 1)
    if case == "dr_grpo":
        return -(term * m).sum() / (count * LONGEST)
    if case in ("grpo", "gspo"):
        return -((term * m).sum(1) / length).mean()
    return -(term * m).sum() / m.sum()


def groups(given: Data, number: int) -> list[Group]:
    found = []
    for index, prompt in enumerate(PROMPTS):
        episodes = []
        for j, ids in enumerate(given.completions[number][index]):
            call = Segment(ROLE, "", prompt, ids, (0.0,) * len(ids), 1.0, FinishReason.STOP, (), "")
            term = RewardTerm("r", float(given.rewards[number][index, j]))
            episodes.append(episode_of(f"{number}/{index}/{j}", [call], [term], task=str(index), role=ROLE))
        found.append(Group(str(index), "", tuple(episodes)))
    return found


@pytest.mark.parametrize("case", CASES)
def test_twenty_steps_lead_to_the_same_weights(case: str) -> None:
    given = data()
    name, changes = CASES[case]
    objective = preset(name, **changes)
    passes = 2 if objective.takes_passes else 1
    learner = learner_of(objective, max_norm=1e9, token_budget=64, passes=passes)
    descend_plainly(learner, RATE)
    for number in range(BATCHES):
        for _ in range(2 // passes):
            learner.update(groups(given, number))

    plain = tiny_network(attn="eager", hidden=32)
    trained = {n: value.requires_grad_(True) for n, value in plain.named_parameters() if "embed" not in n}
    start = {n: value.detach().clone() for n, value in trained.items()}
    frozen = tiny_network(attn="eager", hidden=32)
    for number in range(BATCHES):
        ids, seen, mask = padded(given.completions[number])
        with torch.no_grad():
            old, ref = logprobs(plain, ids, seen), logprobs(frozen, ids, seen)
        for _ in range(2):
            value = written_out(case, logprobs(plain, ids, seen), old, ref, given.rewards[number], mask)
            gradients = torch.autograd.grad(value, list(trained.values()))
            with torch.no_grad():
                for parameter, gradient in zip(trained.values(), gradients, strict=True):
                    parameter -= RATE * gradient

    ours = dict(learner.model.network.named_parameters())
    gap = torch.cat([(ours[n] - value).flatten() for n, value in trained.items()]).detach().norm()
    moved = torch.cat([(value - start[n]).flatten() for n, value in trained.items()]).detach().norm()
    assert moved > 0.01
    assert gap < 1e-4 * moved, (float(gap), float(moved))

"""T-SPMO: trains only the tokens at which the answers of a group diverge."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keepworth.training.objective.options import Objective
from keepworth.training.objective.parts import Advantage, Clip, Token, part
from keepworth.training.objective.presets import Citation, preset_method

if TYPE_CHECKING:
    from torch import Tensor

    from keepworth.training.objective.advantage import CreditTable


@part
class PrefixTree(Advantage):
    """mean R of the group's answers that begin with (prefix, token) - mean R of those that begin with prefix (T-SPMO).

    Tokens at which the group's answers part are trained on, and no other."""

    needs = ("ids",)

    def tokens(self, credit: CreditTable) -> Tensor:
        return tree(credit)[0]

    def keep(self, credit: CreditTable) -> Tensor:
        """Returns the share of each token that is trained on, so that a token shared by several answers counts once."""
        return tree(credit)[1]


def tree(credit: CreditTable) -> tuple[Tensor, Tensor]:
    """Returns two [B,T]: the advantage of each token's node, and the share of the token that is trained on.

    A(v | p) = mean reward of completions that begin with p v, minus that of completions that begin with p.
    A node (p, v) is used if p has at least two completions and at least two distinct continuations; an ended completion counts
    towards p's mean. The k completions that share a node have a share of 1/k each. Nodes are shared within a group only, by the
    tokens the policy drew: the environment's text in between is taken to be a function of them.
    Source: T-SPMO in Token-Efficient RL for LLM Reasoning, arXiv 2504.20834; its formula could not be verified.
    """
    import torch

    batch, table, packed, reward = credit.batch, credit.table, credit.packed, credit.reward
    shape = batch.shape
    advantage = torch.zeros(len(table.ids), packed.width, dtype=torch.float64)
    share = torch.zeros(len(table.ids), packed.width, dtype=torch.float64)
    ids, lengths = packed.pack(batch.require("ids", "PrefixTree")).long().tolist(), packed.lengths.tolist()
    rewards, groups = reward.tolist(), table.group.tolist()
    # A node is its members; children of a node split the members by their next token. Depth first, no hashing of
    # long prefixes: every token is visited once.
    pending = [([e for e in range(len(ids)) if groups[e] == g], 0) for g in sorted(set(groups))]
    while pending:
        members, depth = pending.pop()
        children: dict[int, list[int]] = {}
        for episode in members:
            if depth < lengths[episode]:
                children.setdefault(ids[episode][depth], []).append(episode)
        base = sum(rewards[e] for e in members) / len(members)
        for child in children.values():
            mean = sum(rewards[e] for e in child) / len(child)
            for episode in child:
                if len(children) >= 2:
                    advantage[episode, depth] = mean - base
                    share[episode, depth] = 1 / len(child)
            if len(child) >= 2:
                pending.append((child, depth + 1))
    device = batch.mask.device
    return packed.unpack(advantage.to(device), shape), packed.unpack(share.to(device), shape)


METHOD = preset_method(
    "T-SPMO",
    "Trains only the tokens at which the answers of a group part",
    Objective(
        name="t_spmo",
        advantage=PrefixTree(),
        ratio=Token(),
        surrogate=Clip(0.2, 0.2),
        denominator="kept",
        adapter_decay=0.01,
    ),
    Citation(
        "Token-Efficient RL for LLM Reasoning",
        "2504.20834",
        "secondary",
        ("The formula of the node advantage and adapter_decay, the L2 weight on the adapter, were not confirmed.",),
        "Each distinct (prefix, token) counts once. Wants large groups (about 50) and short answers.",
        "Batch.ids; the trainer applies adapter_decay",
    ),
    claim="With LoRA it learns where GRPO on all tokens does not improve (no number checked).",
)

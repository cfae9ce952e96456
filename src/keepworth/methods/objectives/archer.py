"""ArCHer: a critic of utterances estimates how much better an utterance was than its state, and its tokens get that advantage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from keepworth.training.objective.options import Objective
from keepworth.training.objective.parts import Advised, Share, part
from keepworth.training.objective.presets import Citation, preset_method

if TYPE_CHECKING:
    from torch import Tensor

    from keepworth.training.objective.advantage import CreditTable


@part
class Utterance(Advised):
    """min(Q1, Q2) of the state and the utterance - min(V1, V2) of the state, discount `discount`; targets of Q: r + `discount` V
    of the next state, of V: Q, both of averages that move by `target_rate` a step (ArCHer)."""

    needs = ("values", "action_values", "critic", "steps")
    heads = 2
    values_actions = True
    by_turn = True
    leads = True

    discount: Share = 0.95
    target_rate: Annotated[float, Field(gt=0, le=1)] = 0.1

    def tokens(self, credit: CreditTable) -> Tensor:
        """Source: ArCHer, arXiv 2402.19446, section 4."""
        return credit.action_values(self).double() - credit.state_values(self).double()

    def state_targets(self, credit: CreditTable) -> Tensor:
        """Returns Q of the drawn utterance."""
        return credit.action_values(self).double()

    def action_targets(self, credit: CreditTable) -> Tensor:
        """Returns r + discount (1 - done) V(next state)."""
        turns = credit.turns
        rewards = turns.pack(credit.unpack(credit.token_rewards(credit.reward)), total=True)
        following = turns.pack(credit.state_values(self)).roll(-1, 1)
        following[:, -1] = 0.0  # beyond an episode's last turn packed values are 0
        return turns.unpack(rewards + self.discount * following, credit.batch.shape)


METHOD = preset_method(
    "ArCHer",
    "Trains a critic of whole utterances on earlier episodes too, and lets it guide the token policy",
    Objective(name="archer", advantage=Utterance(), aggregation="seq-mean-token-sum", aggregation_unit="row"),
    Citation(
        "ArCHer: Training Language Model Agents via Hierarchical Multi-Turn RL",
        "2402.19446",
        "code",
        (),
        "Needs a critic that learns faster than the policy: critic_replay of some updates (the critic takes one step on each of "
        "them before an update) and a critic_warmup of 10 to 20. Released settings: critic 2e-5, policy 1e-6 to 1e-5.",
        "a critic with two heads for states and two for utterances",
    ),
    claim="It needs about 100 times fewer samples than on-policy methods on its language tasks, with GPT-2.",
    differs=(
        "The critic is an adapter with linear heads on the policy's own base, where the paper has RoBERTa; "
        "its target is Q of the utterance that was said, and an update takes fewer steps than the released "
        "code."
    ),
)

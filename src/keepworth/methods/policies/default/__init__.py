"""The default policy: the order of the search, changed by what rewards say about the items.

An *arm* is a thing that a reward may be credited to. There are five ways of giving credit: to the item that stood first, to every
item that was shown, to the action that was taken, to that action for the same person alone (if there are several persons), or to
the roles in which items that the episode wrote name that action (`named`). For each way there are 18 estimates, the `MODELS`, of
the reward of an arm at a question. They differ in how much they rely on rewards near the question or on all rewards of the arm,
and in how fast rewards age. Two more estimates ignore arms: one expects the same reward everywhere, the other a reward that
depends on the question alone. Estimates are averaged, weighted by how well each predicted the rewards so far (Bayesian model
averaging in which older predictions count less). If rewards do not depend on items, the two estimates without arms predict best
and the order stays that of the search; if they do, it changes within a few rewards.

    u(arm) = SEARCH * (relative score) + sum over estimates of weight * (reward expected with the arm - reward expected here)

The relative score is 0 for the best candidate of the search and negative for the others. Where rewards depend on items, it
shrinks with the number of rewards of the arm near the question, and with the failures of the search's first candidate there
(`_fade`).

The arm with the largest u comes first. If the question came before, another arm takes its place with about the probability that
it is better (Thompson sampling with computed probabilities, so that propensities are exact). What this has cost, by the rewards
expected of the search's own order, must stay below `BOUND` plus the share `SLACK` of all rewards, or else the search's own order
is shown (after "Conservative Bandits", Wu et al. 2016).

The effect of an item over all questions is measured separately, by an experiment: see `keepworth.memory.choose.ledger`.

| file | what it holds |
| --- | --- |
| `choices` | the rewarded choices that are remembered |
| `models`, `estimates` | what they say about an arm at a question |
| `trials` | the order of candidates, and what is tried or withheld by chance |
| `advice` | which actions are advised |
| `record` | how a reward is learned from, and the answers to the engine |
"""

from __future__ import annotations

from keepworth.memory.choose.slots import Policy, lines
from keepworth.memory.errors import InvalidPolicy
from keepworth.methods.policies.default.choices import BANDWIDTH, NEWEST, QUORUM
from keepworth.methods.policies.default.record import RewardRecord
from keepworth.methods.policies.default.trials import BUDGET, LEAST, TOGETHER, WITHHOLD, Ranked
from keepworth.registry import Method

PARTS = ("roles",)
"""Parts of the policy that an ablation can leave out."""


def situation(goal: str, observation: str) -> str:
    """Return what is asked, or the task if nothing is."""
    return observation or goal


def default(
    *,
    withhold: float = WITHHOLD,
    least: float = LEAST,
    budget: float = BUDGET,
    together: int = TOGETHER,
    bandwidth: float = BANDWIDTH,
    newest: int = NEWEST,
    quorum: int = QUORUM,
    without: str = "",
) -> Policy:
    """Make the default policy.

    Args:
        withhold: Probability with which an item under test is left out, for the ledger; 0 tests nothing.
        least: How often an item must have been shown with a reward before it is tested.
        budget: Expected cost of a test per episode, as a share of the range of rewards.
        together: Items under test in one search.
        bandwidth: How similar questions must be to share evidence, see `BANDWIDTH`.
        newest: How many rewarded choices are remembered.
        quorum: How many more people must agree than disagree on a shared item before it counts for others, see `QUORUM`; with 0
            it never does.
        without: "roles" leaves out what notes of the same episode say about an action.

    Raises:
        InvalidPolicy: There is no such part to leave out.
    """
    if without not in ("", *PARTS):
        raise InvalidPolicy(f"there is no part {without!r} to leave out.", f"Parts: {', '.join(PARTS)}.")
    record = RewardRecord(bandwidth, newest, roles=not without, quorum=quorum)
    selector = Ranked(record, withhold, least, budget, together)
    return Policy("default", situation, None, record, selector, lines, record=record)


METHOD = Method(
    kind="policy",
    name="default",
    title="The default policy",
    about="Takes the order of the search and corrects it by what rewards say (ours)",
    tags=("token", "factual", "experiential", "retrieval"),
    claim="The better of two notes comes first within ten rewards, and next to nothing is lost where rewards say nothing.",
    differs="Not published: this project's own.",
    parts=PARTS,
    make=default,
)

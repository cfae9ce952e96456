"""The default policy: the order of the search, changed by what rewards say about the items.

How it works, in the order of the data.

1. **The record** (`choices`). Each rewarded choice is a row: the question's vector, the items that were shown, the action that
   was taken, for whom, who rewarded it and how. The `NEWEST` rows are remembered, and nobody's push out those of somebody who
   gave fewer. Rewards that vary less than 0 and 1 would are read in the range in which they vary (`reach`). An *arm* is what a
   reward may be credited to, in one of seven ways: the item that stood first, every item that was shown, the item that stood
   first for the same person (alone, or with what stood first for anybody while that person gave few rewards), the action, the
   action for the same person alone, or the roles in which items that the episode wrote name that action.

2. **The estimates** (`models`, `estimates`). At a question, a row counts exp((cosine - 1) / `BANDWIDTH`), and its arm has a
   mean reward there. 12 estimates for each way of giving credit differ in what this mean is drawn to: the arm's mean over all
   questions or the reward that is usual without the arm, how strongly (`PRIOR`), and whether earlier rewards fade (`KEEP`,
   `FADING`); the mean of an action over all questions weights them by their squared similarity. Of roles there is one estimate:
   which of them makes an action right, by claims (`roles`). Two more estimates ignore arms: one expects the same reward
   everywhere, the other a reward that depends on the question alone. Before a reward is learned from, each estimate predicts it.
   Estimates are averaged with the weights that their predictions earned (Bayesian model averaging; `SURE` bounds a single
   surprise, `DISCOUNT` lets old ones count less). If rewards do not depend on items, the two without arms predict best and the
   order stays that of the search.

3. **The order** (`judgement`). The candidates are those of the search and up to ten more that were right at this question.

       u(item) = relative score of the search + sum over estimates of weight * (reward expected with the item - without it)

   The relative score is 0 for the best candidate of the search and negative for others. It shrinks with the item's rewards near
   the question, and with the failures there of the best candidate (`FADE`): while that one does well, the others keep the
   search's order behind it. What an item earned at other questions counts for it only if the search finds it nearly as near
   (`FOREIGN`). The item with the largest u comes first.

4. **The trial** (`trials`). If the question came before, and what stands first was rewarded there, another item takes its place
   with about the probability that it is better (Thompson sampling with computed probabilities: `EXPLORE` is the width of its
   doubt, `NEGLIGIBLE` the least probability). The likeliest is considered first, the next one only if that is not tried. Where
   the first candidate fails (`FAILING`), the doubt is wider and the scores of the search fade, so that one failed trial
   does not end the search for what works. What departures from the search's own order have cost, by the
   rewards that were expected of it, must stay below `BOUND` plus the share `BUDGET` of all rewards, or else that order is shown
   (after "Conservative Bandits", Wu et al. 2016). While all rewards are the same, the limit is smaller (`SAME`), and less so
   while all are the lowest. A question that was asked often and mostly fails gets more trials (`OFTEN`).

5. **The experiment** (`judgement.Ranked`). An item that was shown `PRIOR` times is withheld with the probability `BUDGET`, so
   that its effect over all questions is measured, and that costs no more: see `keepworth.memory.choose.ledger`. Where rewards
   near the question are not clear of chance, the effect that the experiment is sure of takes the place of the estimates' gain.
   Items that somebody tests (`Item.tested`) are withheld together, each by a draw of its own, until the ledger knows whether
   they help or harm; then only its share `ALPHA` of the draws goes against that. Where the memory decides how many items it
   shows (`top_k="auto"`), the smallest set that keeps the reward is learned, and sets are shown on purpose: see `subsets`.

6. **The propensity** (`keepworth.memory.choose.propensity`). Trials and tests are drawn from stated probabilities, so the
   probability of exactly what was shown is known, and is logged.

7. **The advice** (`advice`). Of the actions that an agent can take, the one with the largest gain is advised, with its `VOTES`
   nearest successes, and those with a loss are warned of. What notes of the episode name is tried, one role after the other, up
   to as many rewards in a role as there are roles, and followed from then on if roles predict better than all other estimates
   together.

`constants` has every number that is named here, `record` takes rewards in and answers the engine.
"""

from __future__ import annotations

from keepworth.memory.choose.record import QUORUM
from keepworth.memory.choose.slots import Policy, lines
from keepworth.memory.errors import InvalidPolicy
from keepworth.methods.policies.default.choices import NEWEST
from keepworth.methods.policies.default.constants import BANDWIDTH, BUDGET, PRIOR
from keepworth.methods.policies.default.judgement import Ranked
from keepworth.methods.policies.default.record import RewardRecord
from keepworth.registry import Method

PARTS = ("roles",)
"""Parts of the policy that an ablation can leave out."""


def situation(goal: str, observation: str) -> str:
    """Return what is asked, or the task if nothing is."""
    return observation or goal


def default(
    *,
    withhold: float = BUDGET,
    least: float = PRIOR,
    budget: float = BUDGET,
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
        bandwidth: How similar questions must be to share evidence, see `BANDWIDTH`.
        newest: How many rewarded choices are remembered.
        quorum: How many people must agree on a shared item before it counts for others, see
            `keepworth.memory.choose.consensus`; with 0 it never does.
        without: "roles" leaves out what notes of the same episode say about an action.

    Raises:
        InvalidPolicy: There is no such part to leave out.
    """
    if without not in ("", *PARTS):
        raise InvalidPolicy(f"there is no part {without!r} to leave out.", f"Parts: {', '.join(PARTS)}.")
    record = RewardRecord(bandwidth, newest, roles=not without, quorum=quorum)
    selector = Ranked(record, withhold, least, budget)
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

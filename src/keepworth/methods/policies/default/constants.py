"""The constants of the default policy.

`python -m benchmarks.memory.default_constants` says what each is worth: its ablation, halved, doubled and off, in small worlds.
"""

from __future__ import annotations

# The estimates.
BANDWIDTH = 0.1
"""A reward at another question counts exp((cosine - 1) / BANDWIDTH) of one at the same question."""
OVERALL = 4.0
"""Prior count of an arm's mean reward over all questions: it stands for the reward that is expected without the arm."""
POWER = 3
"""The same mean of an action weights each question by its cosine with this one to this power."""
LOCAL = (0.15, 0.6, 2.5)
"""Prior counts of an arm's mean reward near the question, which stand for its mean over all questions."""
KEEP = 0.85
"""Factor by which each new reward near a question lowers the earlier ones there, in the estimates that forget."""
HOPE = 6.0
"""Number of imagined rewards of one half in the usual reward of an item that stands first: what always failed then gives way to
what was never tried."""
FADING = 0.25
"""Prior weight of the estimates that forget, beside those that do not."""
SURE = 0.08
"""Predicted probabilities lie between this and 1 less this, so that one surprise cannot rule an estimate out."""
DISCOUNT = 0.995
"""Factor by which each new reward lowers the log-likelihood of earlier predictions."""

# The order, and what is tried by chance.
FADE = 2.0
"""Number of rewards near the question after which half of the relative score is gone, if rewards depend on items."""
FOREIGN = 0.3
"""An item that is this far behind the search's first candidate, as a share of its score, and has no reward near the question is
not put forward for what it earned at other questions."""
EXPLORE = 0.5
"""Width of the doubt that explores, in standard deviations of the estimates; it grows to 1 where the first candidate fails."""
FAILING = (0.4, 0.7)
"""Shares of failures that are expected of the first candidate at which it begins to count as failing, and wholly does."""
LASTING = 0.25
"""Share of the relative score that trials take into account also where the first candidate fails: items that rewards cannot tell
apart keep the search's order."""
NEARER = 0.025
"""Of two items that were not tried, one that the search puts ahead is e = 2.7 times as likely to be the right one if the distance
of their relative scores, times the reward that is expected without a trial, is this."""
OFTEN, TRIES = 40.0, 0.4
"""A question that came back more than OFTEN times and mostly fails gets more trials: of all arms together up to the share TRIES
of the times that it came back."""
BOUND = 3.0
"""What departures from the search's own order may cost in all: BOUND rewards plus the share `BUDGET` of all rewards."""
SAME = 0.01
"""Prior probability that all rewards are equal, whatever is shown."""

# The experiment.
BUDGET = 0.01
"""What an experiment may cost for each episode, as a share of the range of rewards. An item under test is withheld with this
probability too: its effect is at most the whole range, so that this never costs more."""
LEAST = 10.0
"""Number of rewarded showings that an item needs before it is tested."""

# What is shown besides.
SPOKEN = 0.1
"""Actions are advised if the estimates of actions have at least this weight together, and for a role that adds more than this:
without it much is said where rewards say nothing."""
TRIED = 3.0
"""Number of rewards up to which a role of an action is tried, whatever the weight of the estimates of roles is."""

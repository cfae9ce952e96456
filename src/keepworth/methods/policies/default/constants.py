"""The constants of the default policy.

`python -m benchmarks.memory.default_constants` says what each is worth: its ablation, halved, doubled and off, in small worlds.
"""

from __future__ import annotations

# The estimates.
BANDWIDTH = 0.1
"""A reward at another question counts exp((cosine - 1) / BANDWIDTH) of one at the same question."""
PRIOR = 10.0
"""So many rewards say as much as what is assumed before any. It is the prior count of an arm's mean reward over all questions,
which is drawn to the reward that is expected without the arm, and of the usual reward of an item that stands first, which is
drawn to one half, so that what always failed gives way to what was never tried. An item needs so many rewarded showings before
it is tested. Near a question three estimates draw an arm's mean to its mean over all questions, with a quarter, a sixteenth and a
sixty-fourth of this."""
KEEP = 0.85
"""Factor by which each new reward near a question lowers the earlier ones there, in the estimates that forget."""
FADING = 0.25
"""Prior weight of the estimates that forget; of those that do not, it is the rest."""
SURE = 0.08
"""Predicted probabilities lie between this and 1 less this, so that one surprise cannot rule an estimate out. What is less
probable than this is not spoken of: actions are advised if it is at least as probable that rewards depend on them, and for a
role that adds more than this; without it much is said where rewards say nothing."""
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
NEARER = 0.025
"""Of two items that were not tried, one that the search puts ahead is e = 2.7 times as likely to be the right one if the distance
of their relative scores, times the reward that is expected without a trial, is this."""
OFTEN = 40.0
"""A question that came back more than OFTEN times and mostly fails gets more trials: of all arms together up to half of the times
that it came back."""
BOUND = 3.0
"""What departures from the search's own order may cost in all: BOUND rewards plus the share `BUDGET` of all rewards."""
SAME = 0.01
"""Prior probability that all rewards are equal, whatever is shown."""

# The experiment.
BUDGET = 0.01
"""What an experiment may cost for each episode, as a share of the range of rewards. An item under test is withheld with this
probability too: its effect is at most the whole range, so that this never costs more."""

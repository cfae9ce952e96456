"""The learner beside TRL's, on the same completions: gradients and weights, not losses."""

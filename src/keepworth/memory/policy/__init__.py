"""Which memory is shown, and what the outcome teaches: a method is a composition of eight slots.

`slots` names them; `propensity` gives every choice its probability; `off_policy` judges a new policy from the log of an
old one. No weights are touched anywhere here.
"""

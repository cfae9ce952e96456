"""Which memory is shown, and what the outcome teaches: a method is a composition of seven slots.

`slots` names them; `propensity` gives every choice its probability. No weights are touched anywhere here.
"""

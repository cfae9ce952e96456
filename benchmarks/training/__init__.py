"""Training on one's own data, as somebody who begins would do it."""

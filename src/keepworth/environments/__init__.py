"""Tasks that answer back. An environment gives observations and rewards that depend on the actions alone."""

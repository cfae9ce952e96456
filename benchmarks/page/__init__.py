"""The page over a memory: how fast it is, and pictures of it."""

"""What reinforcement taught, measured."""

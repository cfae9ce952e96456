"""Published sets of questions, people and arithmetic, read from files of this package."""

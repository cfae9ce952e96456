"""Training: the loop and its objective, credit, collecting of groups, run folders, settings, the front door."""

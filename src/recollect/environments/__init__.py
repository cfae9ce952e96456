"""Tasks that talk back. A world shows a scene, takes an action and gives a reward that depends on the action alone."""

"""Tasks that talk back. A world shows a scene and takes an action; an environment does so asynchronously, for agents that
call a model. Both give rewards that depend on the actions alone."""

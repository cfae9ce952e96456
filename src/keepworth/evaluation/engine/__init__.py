"""How fast the engine is on this machine, next to what the machine could do at most, and next to other stores."""

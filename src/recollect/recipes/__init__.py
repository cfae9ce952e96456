"""One file per system: a composition of everything below."""

"""Simulated nights: the engine under drawn work and drawn faults, by a seed, beside a naive model. See `run`."""

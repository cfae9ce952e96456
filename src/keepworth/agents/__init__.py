"""How memory is used: one file per discipline."""

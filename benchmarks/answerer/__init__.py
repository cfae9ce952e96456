"""Does training help an answerer to use its memory? Arms, seeds, controls, and harder settings."""

"""What there is to gain by choosing what to write down, and what learning gains of it."""

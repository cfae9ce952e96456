"""Training systems of papers, a file each: what of each is here, and the command that runs it; `keepworth methods show NAME`."""

"""What asynchronous training is worth, and what staleness costs: each module measures one thing and writes its JSON."""

MODES = ("hybrid", "lexical", "dense")
"""The ways to search; "hybrid" joins the other two."""

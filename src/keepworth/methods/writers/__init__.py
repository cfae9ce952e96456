"""Writers: they decide what is stored of an episode, or of messages."""

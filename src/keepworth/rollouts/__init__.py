"""Running agents: the driver and its batching, streams, deadlines, and rewards that need a bank or a frozen reader."""

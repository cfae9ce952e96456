"""Running agents: driver, scheduler, reward terms that need services."""

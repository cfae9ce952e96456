"""What was measured of control: the trainer's speed, the memories' cost, learning probes, the table."""

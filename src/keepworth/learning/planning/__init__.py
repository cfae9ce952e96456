"""What a training pipeline would do on machines that are not here: its work, its costs, and a simulation with its own rule of
admission."""

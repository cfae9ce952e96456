"""Objectives, credit, learners, the trainer, checkpoints, run folders."""

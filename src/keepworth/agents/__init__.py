"""Agents: one file for each way of using memory."""

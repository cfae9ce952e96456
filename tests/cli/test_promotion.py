"""`keepworth memory promotion` says how far a policy has replaced another."""

from __future__ import annotations

import json

from keepworth import Memory
from tests.cli.conftest import CommandLine


def test_promotion_command_says_share_and_evidence(command: CommandLine) -> None:
    with Memory("a.mem", encoder="hashing", policy="memrl", replaces="default", seed=0) as memory:
        memory.add_many(["To reset the router hold the button.", "The router has a plug."])
        for _ in range(3):
            memory.reward(memory.search("reset the router").decision, 1.0)
    text = command.done("memory", "promotion", "--file", "a.mem")
    assert "memrl is on trial" in text
    (trial,) = [
        json.loads(line) for line in command.done("memory", "promotion", "--file", "a.mem", "--json").splitlines()
    ]
    assert (trial["policy"], trial["replaces"], trial["rewards"]) == ("memrl", "default", 3)
    assert trial["why"] in text

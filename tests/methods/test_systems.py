"""Training systems of papers: each says what of it is here, and its command is one that this package takes."""

from __future__ import annotations

import shlex

import pytest
from typer.testing import CliRunner

from benchmarks.methods.systems import SOURCES, UNREACHABLE, read_record
from keepworth.cli.main import app
from keepworth.evaluation.paper_system import PaperSystem
from keepworth.registry import evidence, methods

SYSTEMS = methods("system")


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_system_has_a_paper_a_claim_and_evidence_of_its_kind(name: str) -> None:
    declared = SYSTEMS[name]
    measured = evidence(declared)
    assert isinstance(declared.make, PaperSystem)
    assert declared.paper.startswith("arXiv ")
    assert declared.claim
    assert declared.make.here
    assert measured
    assert measured["name"] == name
    assert (name in SOURCES) != (name in UNREACHABLE)
    assert (measured["verdict"] == "stale") == (name in SOURCES)


@pytest.mark.parametrize("name", SYSTEMS)
def test_its_command_is_taken(name: str) -> None:
    command = SYSTEMS[name].make()
    if not command:
        pytest.skip("decided against: there is no code, and the numbers stand with their revision")
    program, *words = shlex.split(command)
    assert program == "keepworth"
    if words[0] == "train" and words[1] in methods("recipe"):
        words = [word.replace("HOST:PORT", "127.0.0.1:6379") for word in words] + ["--print-config"]
        ran = CliRunner().invoke(app, words)
        settings = dict(word.split("=", 1) for word in words if "=" in word)
        assert all(value in ran.stdout for value in settings.values())
    else:
        verbs = words[: 2 if words[0] == "eval" else 1]
        ran = CliRunner().invoke(app, [*verbs, "--help"])
    assert ran.exit_code == 0, ran.output


def test_numbers_of_a_removed_system_are_those_of_its_revision() -> None:
    measured = evidence(SYSTEMS["sapo"])
    assert measured
    assert measured["command"] == "git checkout a11844ee; python -m benchmarks.cluster.swarm"
    gains = {gap["against"]: gap["mean"] for gap in measured["comparisons"]}
    try:
        arms = {row["arm"]: row for row in read_record("a11844ee", "cluster/swarm.json")["arms"]}
    except Exception:
        pytest.skip("this checkout has no history")
    assert gains["8 + 0: 4 + 4"] == round(arms["4 + 4"]["equal_seconds_gain"]["mean"], 4)

"""Stages change the hits of a search before a policy chooses: by their order, by leaving hits out, and by nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from keepworth.base.errors import KeepworthError
from keepworth.memory.errors import InvalidFilter
from keepworth.memory.memory import Memory
from keepworth.memory.search.search import Hit
from keepworth.memory.search.stages import StageRequest
from tests.memory.helpers import WordEncoder, finds

ANIMALS = ("ant", "bee", "cat", "dog", "eel", "fox")


def farthest_first(request: StageRequest, hits: Sequence[Hit]) -> list[Hit]:
    return list(reversed(hits))


def without_drafts(request: StageRequest, hits: Sequence[Hit]) -> list[Hit]:
    return [hit for hit in hits if not hit.item.metadata.get("draft")]


def filled(**settings: Any) -> Memory:
    """Six notes, of which the nearest to "ant red hat" come first, and the first two are drafts."""
    memory = Memory(encoder=WordEncoder(64), **settings)
    for number, animal in enumerate(ANIMALS):
        memory.add(f"{animal} {'red hat ' * (number < 3)}is here", metadata={"draft": number < 2})
    return memory


@pytest.mark.parametrize("mode", ["lexical", "dense", "hybrid"])
@pytest.mark.parametrize("policy", [None, "default"])
def test_a_stage_leaves_out_hits_and_others_take_their_places(policy: str | None, mode: str) -> None:
    with filled(policy=policy) as memory, filled(policy=policy, stages=[without_drafts]) as staged:
        everything = finds(memory, "ant red hat is here", top_k=6, mode=mode, explore=False)
        without = finds(staged, "ant red hat is here", top_k=3, mode=mode, explore=False)
    assert len(without) == 3
    assert without == [text for text in everything if text.split()[0] not in ("ant", "bee")][:3]


@pytest.mark.parametrize("policy", ["exprag", "kernel-mean-items"])
def test_a_policy_that_retrieves_its_own_candidates_goes_through_the_stages(policy: str) -> None:
    with filled(policy=policy, stages=[without_drafts]) as memory:
        texts = finds(memory, "red hat", top_k=6, explore=False)
    assert texts[0] == "cat red hat is here"
    assert {text.split()[0] for text in texts} <= {*ANIMALS[2:]}


def test_the_order_of_a_stage_counts_and_the_explanation_names_it() -> None:
    with filled() as memory, filled(stages=[farthest_first]) as staged:
        hits = memory.search("ant red hat is here", top_k=50, explain=True)
        turned = staged.search("ant red hat is here", top_k=50, explain=True)
    assert [hit.text for hit in turned] == [hit.text for hit in reversed(hits)]
    assert [hit.score for hit in turned] == sorted((hit.score for hit in hits), reverse=True)
    assert {hit.why.stages for hit in hits} == {()}
    assert {hit.why.stages for hit in turned} == {("farthest_first",)}
    assert all(hit.why.terms for hit in turned)


def test_stages_run_in_order_with_question_and_filters() -> None:
    requests: list[StageRequest] = []

    def listen(request: StageRequest, hits: Sequence[Hit]) -> Sequence[Hit]:
        requests.append(request)
        return hits

    with filled(stages=[without_drafts, farthest_first, listen]) as memory:
        hits = memory.search("ant red hat", top_k=2, kinds=["fact"])
        assert {hit.text.split()[0] for hit in hits} <= {*ANIMALS[2:]}
        assert memory.search("ant red hat", where={"draft": True}) == []
    assert requests[0].query == "ant red hat"
    assert requests[0].options.k == 2
    assert [kind.value for kind in requests[0].options.kinds] == ["fact"]


def test_stage_with_invalid_output_is_named() -> None:
    stages = {
        "invents": lambda request, hits: [*hits, replace(hits[0], item=replace(hits[0].item, id="m99"))],
        "repeats": lambda request, hits: [*hits, hits[0]],
        "forgets": lambda request, hits: None,
        "words": lambda request, hits: ["ant"],
    }
    for name, stage in stages.items():
        stage.__name__ = name
        with filled(stages=[stage]) as memory, pytest.raises(KeepworthError, match=f"stage {name}"):
            memory.search("ant")


@pytest.mark.parametrize(("stages", "says"), [
    ("newest", "takes several"), (farthest_first, "takes several"), ([3], "must be a function"),
    (["no-such"], "no stage 'no-such'"),
])  # fmt: skip
def test_invalid_stages_are_refused_before_a_file_is_made(stages: Any, says: str, tmp_path: Any) -> None:
    with pytest.raises((InvalidFilter, KeepworthError), match=says):
        Memory(tmp_path / "agent.mem", encoder=None, stages=stages)
    assert not (tmp_path / "agent.mem").exists()

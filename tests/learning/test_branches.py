"""Re-rolls while groups are sampled ahead: part of their group, numbered after its members, continued after a stop."""

from __future__ import annotations

from pathlib import Path

import pytest

from keepworth.episodes import Episode
from keepworth.learning.collect.groups import EpisodeContext
from keepworth.learning.run_folder import RunFolder
from keepworth.methods.recipes._bank.rerolls import rolled_again
from tests.learning.letters import Letters, again, settings, train_letters

MEMBERS, SIZE = 3, 2


def trained(folder: Path) -> list[tuple[int, Episode]]:
    return [(stored.step, stored.episode) for stored in RunFolder.open(folder).episodes(arm="train")]


@pytest.mark.parametrize("mode", ["turns", "overlap", "serial"])
def test_every_call_of_a_groups_first_episode_is_rolled_again(tmp_path: Path, mode: str) -> None:
    regroup = rolled_again(again, SIZE, probability=1.0, seed=0)
    train_letters(tmp_path / "run", 3, settings(mode=mode), Letters(turns=2), regroup=regroup)
    found = {(step, episode.id): episode for step, episode in trained(tmp_path / "run")}
    assert len(found) == 3 * 4 * (MEMBERS + 2 * SIZE)
    assert len({name for _, name in found}) == len(found), "something was trained twice"
    for (step, name), episode in found.items():
        index, member = map(int, name.split("/"))
        if member < MEMBERS:
            assert not episode.parent
            continue
        anchor = found[step, f"{index}/0"]  # trained in the same update
        assert episode.parent == anchor.id
        assert episode.segments[0].context == anchor.segments[(member - MEMBERS) // SIZE].context


def test_re_rolls_that_fail_are_left_out_and_said(tmp_path: Path) -> None:
    async def breaks(anchor: Episode, index: int, context: EpisodeContext) -> Episode:
        if context.group % 2 == 0 and context.member == MEMBERS:
            raise ConnectionResetError("gone")
        return await again(anchor, index, context)

    regroup = rolled_again(breaks, SIZE, probability=1.0, seed=0)
    train_letters(tmp_path / "run", 2, settings(mode="serial"), Letters(), regroup=regroup)
    parents = {episode.parent.split("/")[0] for _, episode in trained(tmp_path / "run") if episode.parent}
    assert parents == {str(index) for index in range(8) if index % 2}
    failed = [stored.episode for stored in RunFolder.open(tmp_path / "run").episodes(arm="failed")]
    assert any("gone" in error for episode in failed for error in episode.errors)

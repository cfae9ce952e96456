"""The closed loop in short: the unmodified SDK, real HTTP, a user who corrects and rewards."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("openai")

from benchmarks.agents.closed_loop import LIKED, Loop, Reader, bolder, upstream


@pytest.mark.parametrize("arm", ["bolder", "none", "oracle"])
def test_what_is_shown_is_in_the_bytes_and_what_was_corrected_is_known(arm: str, tmp_path: Path) -> None:
    reader = Reader()
    with upstream(reader) as url, bolder(url, tmp_path / "agent.mem") as server:
        played = Loop(server.url, arm, 0, 24, reader).played()
    if arm == "oracle":
        assert played["success"] == 1.0
    elif arm == "none":
        assert played["success"] < 1.0
        assert played["chosen"] == 0
    else:
        assert played["chosen"] == played["shown"] > 0
        assert played["favourites"] > 1.0 / len(LIKED["tea"]), "what was corrected is known in the next conversation"

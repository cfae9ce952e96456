"""A credit writes the five columns it changes; the row is then the one that a whole rewrite would leave."""

from __future__ import annotations

from pathlib import Path

from keepworth.memory.item import EVERYWHERE, Status, ValueStatistics
from keepworth.memory.memory import Memory
from keepworth.memory.operations import Assignment, Credit, Draft


def test_credits_alone_and_with_other_changes_end_in_the_same_rows(tmp_path: Path) -> None:
    with Memory(tmp_path / "one.mem", encoder=None, log="off") as memory:
        kept, retired = (memory.add(text).id for text in ("cats purr", "dogs bark"))
        before = memory.store.sums(EVERYWHERE)
        store, draft = memory.store, Draft(scope=EVERYWHERE)
        store.perform(EVERYWHERE, [(Credit(1.0, ((kept, 0.5), (kept, 0.25))), draft)])
        assert memory.store.sums(EVERYWHERE) == before
        retire = Assignment(retired, {"status": "archived"})
        store.perform(EVERYWHERE, [(Credit(0.5, ((retired, 1.0),)), draft), (retire, draft)])
        assert memory.get(kept).values == ValueStatistics(2, 2, 2.0, 2.0, 0.75)
        assert memory.get(retired).values == ValueStatistics(1, 1, 0.5, 0.25, 1.0)
        assert memory.get(retired).status is Status.ARCHIVED
        (hit,) = memory.search("purr bark", mode="lexical")
        assert (hit.id, hit.utility) == (kept, 1.0)
        assert [each.after.values.credited for each in memory.history(kept) if each.after is not None] == [0, 2]
    with Memory(tmp_path / "one.mem", encoder=None, log="off") as memory:
        assert memory.get(kept).values == ValueStatistics(2, 2, 2.0, 2.0, 0.75)
        assert memory.add("cats purr").id == kept  # still found by its content

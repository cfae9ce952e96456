"""The page of the ledger: what it says is what the ledger says, and no text of an item is obeyed."""

from __future__ import annotations

import math
import re
from pathlib import Path

from typer.testing import CliRunner

from keepworth import Memory, Trial, policy
from keepworth.cli.memory import app
from keepworth.episodes.errors import KeepworthError


def shown(path: Path, *words: str) -> str:
    found = CliRunner().invoke(app, ["ledger", "--file", str(path), *words])
    assert found.exit_code == 0, found.output
    return found.output


def test_the_page_says_what_the_ledger_and_the_trials_say(tmp_path: Path) -> None:
    path, page = tmp_path / "a.mem", tmp_path / "worth.html"
    hostile = "reset the router: <script>alert(1)</script> & call"
    often = policy("default", withhold=0.4, budget=1.0)
    with Memory(path, encoder="hashing", seed=1, policy=often, trial=Trial(source="tour", block=2, seed=7)) as memory:
        memory.add_many([hostile, "reset the router: pull the plug"], source="manual")
        memory.add("the router stands in the hall", source="tour")
        for number in range(320):  # a file draws anew in every process: of 24 draws the slowest was sure after 220
            with memory.episode("help the caller") as episode:
                hits = episode.search(f"the router of caller {number} is stuck, model {7919 * number}", top_k=3)
                episode.reward(1.0 if any("plug" in hit.text for hit in hits) else 0.0)
        statement, trials = memory.ledger(), memory.trials()
    assert "Written: " in shown(path, "--page", str(page))
    text = page.read_text()
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; call" in text
    rows = re.findall(r"<tr>(<td.*?)</tr>", text)
    assert len(rows) == len(statement.accounts) + len(trials)
    for account, row in zip(statement.accounts, rows, strict=False):
        assert f"<b>{account.item}</b>" in row
        assert f">{account.effect:+.2f}<" in row
        known = math.isfinite(account.high)
        assert (f">[{account.low:+.2f}, {account.high:+.2f}]<" if known else ">none yet<") in row
        assert f">{account.verdict}" in row
    assert "helps" in {account.verdict for account in statement.accounts}
    assert f"Of 3 items {sum(each.verdict == 'helps' for each in statement.accounts)} surely help" in text
    assert f"{trials[0].verdict}, {trials[0].pairs} pairs" in rows[-1]
    for note in shown(path).splitlines()[-2:]:
        assert note in text


def test_a_memory_without_rewards_has_a_page_that_says_so(tmp_path: Path) -> None:
    path, page = tmp_path / "a.mem", tmp_path / "worth.html"
    with Memory(path, encoder="hashing") as memory:
        memory.add("the router stands in the hall")
    shown(path, "--page", str(page))
    assert "No item was shown with a reward yet." in page.read_text()


def test_two_forms_of_the_same_are_refused(tmp_path: Path) -> None:
    words = ["--file", str(tmp_path / "a.mem"), "--page", "x.html"]
    found = CliRunner().invoke(app, ["ledger", *words, "--json"])
    assert found.exit_code == 2
    assert "leave one out" in " ".join(found.output.replace("│", " ").split())
    for command, more, said in (("worth", [], "memory ledger"), ("worth", ["--trial"], "memory trials")):
        refused = CliRunner().invoke(app, [command, *more, *words[:2]]).exception
        assert isinstance(refused, KeepworthError)
        assert said in refused.fix

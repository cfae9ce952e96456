"""Success of memories by how far back lies what counts, from a comparison that `keepworth eval stream` left.

    keepworth eval stream --streams t-maze:length=4,t-maze:length=8,... --arms ... --seeds 12 --split held-out --out FOLDER
    python -m benchmarks.streams.horizons FOLDER --json benchmarks/streams/horizons.json

K is how many past observations the agent itself sees, and xi how many steps lie between what counts and its use, the least and
the most of a stream ("Unraveling the Complexity of Memory in RL Agents", arXiv 2412.06531). With K < xi memory alone can help.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.methods.write import arm as estimated
from benchmarks.record import arguments, save
from benchmarks.streams.memories import Table, circumstances, command
from keepworth.base.line_file import read_lines
from keepworth.evaluation.stream import StreamRow
from keepworth.worlds.streams import open_stream


def horizons(table: Table) -> list[dict[str, Any]]:
    """A row for each stream: K, xi, and the success of each arm while learning."""
    rows = []
    for name in table.streams:
        stream = open_stream(name, length=1)
        success = {arm: estimated("", table.scores(arm, name)) for arm in table.arms}
        xi = [min(stream.horizons), max(stream.horizons)]
        rows.append({"stream": name, "K": stream.context, "xi": xi, "arms": success})
    return rows


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    options = parser.parse_args()
    table = Table([StreamRow(**record) for record in read_lines(options.folder / "rows.jsonl")])
    about = {"command": command(options.folder), **circumstances(table), "unit": "rule set: 50 tasks, while learning"}
    save(options.json, {**about, "rows": horizons(table)})


if __name__ == "__main__":
    main()

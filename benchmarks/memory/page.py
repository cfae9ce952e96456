"""Put the tables of the JSON files beside this one into docs/appendix/memory_benchmarks.md and docs/learning.md, so that no
number is typed by hand.

python -m benchmarks.memory.page
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.memory.peers import ENGINE, POWER_SAFE, ratio
from benchmarks.tables import filled, markdown, takes_nothing

HERE = Path(__file__).parent
PAGE = HERE.parent.parent / "docs" / "appendix" / "memory_benchmarks.md"
Result = Any


def engine(result: Result) -> str:
    rows = [
        (
            row["name"],
            _number(row["p50"]),
            _number(row["p95"]),
            _number(row["limit"]),
            row["unit"],
            f"{row['p50'] / row['limit']:.2f}x" if row["limit"] and row["unit"] != "items/s" else "",
            row["target"],
            row["note"],
        )
        for row in result["figures"]
    ]
    head = ("", "p50", "p95", "limit", "unit", "p50 / limit", "target", "how")
    return markdown(head, rows) + f"\n\n{result['size']:,} items, seed {result['seed']}. " + _setting(result["machine"])


def growth(result: Result) -> str:
    """One column for each size."""
    sizes = [{row["name"]: row for row in record["figures"]} for record in result]
    names = dict.fromkeys(name for rows in sizes for name in rows)
    rows = [
        (name, next(of[name]["unit"] for of in sizes if name in of), *(_with_limit(of.get(name)) for of in sizes))
        for name in names
    ]
    head = ("median (limit)", "unit", *(f"{record['size']:,}" for record in result))
    return markdown(head, rows) + "\n\n" + _setting(result[-1]["machine"])


def peers(result: Result) -> str:
    rows = []
    for row in result["rows"]:
        versions = ", ".join(f"{package} {version}" for package, version in row["versions"].items())
        found = row["at the end"]
        syncs = "" if row.get("syncs per add") is None else f"{row['syncs per add']:.0f}"
        cells = (_pair(found.get(key)) for key in KEYS)
        limit = _number(found.get("reading limit"))
        rows.append((f"{row['name']} ({versions})", syncs, f"{found['items']:,}", *cells, limit))
    head = ("store", "disk syncs per add", "items", "add", "search all", "one user", "limit of search all")
    text = (
        f"Milliseconds, p50 / p95, where {result['seconds']:g} seconds of adding one by one led (at most {result['size']:,} "
        f"items). One disk sync takes {result['sync_ms']:.2g} ms."
    )
    return text + "\n\n" + markdown(head, rows) + "\n\n" + _setting(result["machine"])


def adds(result: Result) -> str:
    """What an add costs mem0 and the engine, side by side."""
    rows = [
        (
            row["name"],
            *(
                cell
                for where in ("at common size", "at the end")
                for cell in (f"{row[where]['items']:,}", _pair(row[where]["add"]))
            ),
        )
        for row in result["rows"]
    ]
    text = (
        f"{_ratios(result)} One disk sync takes {result['sync_ms']:.2g} ms; {result['seconds']:g} seconds of adding each, "
        f"milliseconds p50 / p95."
    )
    stores = markdown(("store", "items", "add", "items", "add"), rows)
    return text + "\n\n" + stores + "\n\n" + _setting(result["machine"])


KEYS = ("add", "search", "search one user")


def _ratios(result: Result) -> str:
    plain, safe = ratio(result["rows"], ENGINE), ratio(result["rows"], POWER_SAFE)
    if plain is None or safe is None:
        return ""
    return (
        f"An add costs mem0 **{_times(plain)} times** as much as this engine, each with its defaults, and "
        f"**{_times(safe)} times** as much where both survive a power cut."
    )


def _times(ratio: float) -> str:
    return f"{ratio:.1f}" if ratio < 10 else f"{ratio:.0f}"


def concurrency(result: Result) -> str:
    seen = result["visibility"]
    rows = [
        (role, f"{result[role]['done']:,}", *(_number(result[role][part]) for part in ("p50", "p95", "longest")))
        for role in ("writer", "reader")
    ]
    text = (
        f"{result['writers']} writers and {result['readers']} readers, a process each, {result['seconds']:g} s: "
        f"**{result['errors']} errors**, {result['lost']} of {result['items']:,} items lost, "
        f"{'every check sound' if not result['problems'] else result['problems']}. Of {seen['looks']:,} looks, "
        f"**{seen['stale']} missed** anything acknowledged before they began. From the acknowledgement to the first look of a "
        f"reader that saw it: median {seen['delay p50']:.1f} ms, p95 {seen['delay p95']:.1f} ms, p99 {seen['delay p99']:.1f} ms "
        f"(most of it the reader's own search, and waiting for one of {result['machine']['cores']} cores)."
    )
    head = ("", "calls", "p50 ms", "p95 ms", "longest ms")
    return text + "\n\n" + markdown(head, rows) + "\n\n" + _setting(result["machine"])


def postgres(result: Result) -> str:
    rows = []
    for durability, both in result["side_by_side"].items():
        for verb, file in both["file"].items():
            server = both["postgres"][verb]
            cells = [f"{each['p50_ms']:.2f} / {each['p95_ms']:.2f}" for each in (file, server)]
            rows.append((verb, durability, f"{file['n']:,}", *cells, f"{server['p50_ms'] / file['p50_ms']:.1f}"))
    clients, server = result["clients_killed"], result["server_killed"]
    killed = (
        f"{clients['kills']} clients killed, four at a time while they wrote: {clients['acknowledged']:,} acknowledged items, "
        f"**{clients['lost']} lost**. The server killed {server['server_kills']} times under {server['processes']} writing "
        f'processes with `durability="power"`: {server["acknowledged"]:,} acknowledged, **{server["lost"]} lost**; every check '
        "sound."
    )
    head = ("", "durability", "n", "file, ms", "Postgres, ms", "times the file")
    version = f"PostgreSQL {result['postgres'] // 10000}.{result['postgres'] % 100}, psycopg {result['psycopg']}. "
    table = markdown(head, rows, left=2)
    return f"{table}\n\n{killed}\n\n{result['items']:,} items in all, p50 / p95. {version}" + _setting(
        result["machine"]
    )


def crash(result: Result) -> str:
    return (
        f"{result['rounds']} rounds, {result['kills']:,} processes killed, {result['acknowledged']:,} acknowledged items, "
        f"**{result['lost']} lost**; every check sound ({result['checks_sound']}), the journal replayed to the same view "
        f"{result['replays']} times; {result['files']} files, seeds {result['seeds'][0]} to {result['seeds'][-1]}. "
        + _setting(result["machine"])
    )


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _with_limit(row: dict[str, Any] | None) -> str:
    if row is None:
        return ""
    return _number(row["p50"]) + (f" ({_number(row['limit'])})" if row["limit"] else "")


def _pair(values: Sequence[float] | None) -> str:
    return " / ".join(map(_number, values)) if values else "not offered"


def _setting(machine: dict[str, Any]) -> str:
    return (
        f"{machine['processor']}, {machine['cores']} cores, load average {machine['load_average_at_start']:.1f}, "
        f"{machine['measured_at'][:10]}."
    )


def finding(result: Result) -> str:
    """What is found, beside everything else, and the paired gain over the best of that in the mean."""
    pools = result["pools"]
    names = [name for name in next(iter(pools.values()))["recall"] if name not in ("ranks, 60", "min-max, 0.3 words")]
    means = {name: sum(pool["recall"][name] for pool in pools.values()) / len(pools) for name in names}
    best = max((name for name in names[1:] if not name.startswith(names[0])), key=lambda name: means[name])
    rows = []
    for pool, each in pools.items():
        gain = each["gain"][best]
        recalls = (f"{each['recall'][name]:.3f}" for name in names)
        rows.append(
            (
                f"{pool}: {each['questions']:,}",
                *recalls,
                f"{gain['mean']:+.3f} [{gain['low']:+.3f}, {gain['high']:+.3f}]",
            )
        )
    rows.append(("mean", *(f"{mean:.3f}" for mean in means.values()), ""))
    head = ("recall of the first ten; questions", *names, f"gain over {best}")
    return markdown(head, rows) + "\n\n" + _setting(result["machine"])


TABLES: dict[str, tuple[str, Callable[[Result], str]]] = {
    "engine": ("engine", engine),
    "adds": ("adds", adds),
    "cold": ("cold", growth),
    "taught": ("taught", growth),
    "rewarded": ("rewarded", growth),
    "peers": ("peers", peers),
    "concurrency": ("concurrency", concurrency),
    "crash": ("crash", crash),
    "postgres": ("postgres", postgres),
    "finding": ("finding", finding),
}
"""Place on the page: the JSON file, and what makes a table of it."""


REWARDS = ("true", "flipped", "constant", "nothing", "permuted")


def learning(result: Result) -> str:
    """The tables of how fast the default policy learns."""
    parts = {"two notes": result["two notes"]["default"], "slates": result["slates"], "traps": result["traps"]}
    rows = [(f"{name}: {what}", _learned(row)) for name, part in parts.items() for what, row in part.items()]
    gains: dict[tuple[str, str], dict[str, Any]] = {}
    for what, row in result["banking77"].items():
        world, found, rest = what.partition(" tasks, ")
        if not found:
            rows.append((what, _learned(row)))
        elif row["mean"] == row["mean"]:
            policy, _, rewards = rest.partition(", ")
            gains.setdefault((f"{world} tasks", policy), {})[rewards] = row
    lines = [
        (*key, *(f"{_learned(row)}; {row['worst prefix']:.2f}" if (row := of.get(name)) else "" for name in REWARDS))
        for key, of in gains.items()
    ]
    head = ("BANKING77", "policy", *(f"rewards {rewards}" for rewards in REWARDS))
    return (
        f"{markdown(('the default policy', 'value'), rows)}\n\n{markdown(head, lines, left=2)}\n\n"
        "Of BANKING77: points over plain search, and behind the semicolon the lowest mean from task 50 on. Means over draws, "
        f"with 95 % intervals. `{result['command']}`"
    )


def _learned(row: Any) -> str:
    if isinstance(row, list):
        return f"{row[0]} of {row[1]}"
    if "median" in row:
        return f"median {row['median']:g}, 90th percentile {row['90th percentile']:g}"
    return f"{row['mean']:.2f} [{row['low']:.2f}, {row['high']:.2f}]"


def main() -> None:
    takes_nothing(__doc__)
    for name, (file, render) in TABLES.items():
        path = HERE / f"{file}.json"
        if not path.exists():
            print(f"{path} is missing: its table stays as it is")
            continue
        filled(PAGE, name, render(json.loads(path.read_text())))
    path = HERE / "learning.json"
    if path.exists():
        filled(PAGE.parent.parent / "learning.md", "learning-table", learning(json.loads(path.read_text())))


if __name__ == "__main__":
    main()

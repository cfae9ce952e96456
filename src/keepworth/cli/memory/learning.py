"""`keepworth memory reward` and `episode`, and estimates from rewards: `pending`, `worth` and `ledger`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Annotated, Any

from keepworth.base.errors import UnknownName
from keepworth.base.text import entry, one_line
from keepworth.cli.command import App, argument, option
from keepworth.cli.memory.group import LEARN, POLICY, Id, Limit, Line, Lines, NoteLine, TopK, again, app, command
from keepworth.cli.memory.items import hit_line
from keepworth.cli.output import say_text, width
from keepworth.memory.place import MemoryPlace

if TYPE_CHECKING:
    from keepworth.memory.choose.ledger import Account, Balance
    from keepworth.memory.memory import Memory
    from keepworth.memory.search.search import Worth

episode_app = App(help="Record an attempt at a task, so that its reward reaches what was shown and written in it.")
app.add_typer(episode_app, name="episode", rich_help_panel=LEARN)
EpisodeId = Annotated[str, argument("EPISODE", "Its id, as `begin` printed it.")]
# An agent opens the memory with the policy that chooses and learns, and so do these commands.


@command(
    episode_app,
    examples='keepworth memory episode begin "answer a refund request" --user ana',
    bounds=True,
    opens="default",
    make=True,
    policy=POLICY,
)
def begin(
    memory: Memory,
    file: MemoryPlace,
    bounds: dict[str, Any],
    task: Annotated[str, argument("TASK", "What is attempted, in words.")] = "",
    by: Annotated[str, option("--by NAME", "Who will judge it, where its rewards do not say.")] = "",
) -> Lines:
    """Begin an episode, and print its id."""
    live = memory.episode(task, by=by, **bounds)
    yield Line({"episode": live.id, "task": live.task}, live.id)
    yield NoteLine(
        f"Next: {again(file, 'episode', 'search', live.id)}\nAt the end: {again(file, 'reward', live.id, '1')}"
    )


@command(
    episode_app,
    "search",
    examples='keepworth memory episode search e4f0c1 "how to refund" --top-k 3',
    encoder=True,
    policy=POLICY,
)
def search_in(
    memory: Memory,
    episode: EpisodeId,
    query: Annotated[str, argument("QUERY", "What is looked for; the task if not given.")] = "",
    top_k: TopK = 10,
) -> Lines:
    """Find as an agent does: the policy chooses, and a reward of the episode reaches what was shown."""
    hits = memory.reopen(episode).search(query, top_k=top_k)
    yield from map(hit_line, hits)
    if hits:
        yield NoteLine(f"The decision is {hits.decision}, for a reward of its own.")
    else:
        yield NoteLine("Nothing found, or nothing that the policy would show.")


@command(episode_app, examples='keepworth memory episode act e4f0c1 "sent form B"', opens="default", policy=POLICY)
def act(memory: Memory, episode: EpisodeId, action: Annotated[str, argument("", "What was done.")]) -> Lines:
    """Note what was done after the last searches."""
    memory.reopen(episode).act(action)
    yield Line({"episode": episode, "action": action}, f"{episode}: noted.")


@command(episode_app, examples="keepworth memory episode end e4f0c1", opens="default", policy=POLICY)
def end(
    memory: Memory, episode: EpisodeId, outcome: Annotated[str, option("--outcome TEXT", "How it ended.")] = "completed"
) -> Lines:
    """Note that an episode is over. Rewards may still come."""
    memory.reopen(episode).end(outcome or "completed")
    yield Line({"episode": episode, "outcome": outcome or "completed"}, f"{episode}: over.")


@command(episode_app, "list", examples="keepworth memory episode list --user ana --limit 20", bounds=True)
def list_episodes(
    memory: Memory,
    bounds: dict[str, Any],
    limit: Limit = 100,
    after: Annotated[str, option("EPISODE", "Go on after this one.")] = "",
) -> Lines:
    """List episodes, oldest first: the id, the reward, the task."""
    ids = memory.episodes(limit=limit, after=after, **bounds)
    yield from _episodes(memory, ids)
    if not ids:
        yield NoteLine("There is no episode: `keepworth memory episode begin TASK` begins one.")


def _episodes(memory: Memory, ids: list[str]) -> Lines:
    for id in ids:
        record = memory.episode_record(id)
        reward = record.reward if record.rewards else None
        shown = [view.item for view in record.shown]
        text = f"{id}  {'no reward' if reward is None else f'{reward:9.3f}'}  {one_line(record.task)}"
        yield Line({"episode": id, "task": record.task, "reward": reward, "shown": shown}, text)


@command(episode_app, "show", examples="keepworth memory episode show e4f0c1")
def show_episode(memory: Memory, episode: EpisodeId) -> Lines:
    """Show an episode: the task, what was shown, written and done, and its rewards."""
    from keepworth.cli.episode_panel import episode_panel
    from keepworth.records.episode import episode_to_json

    record = memory.episode_record(episode)
    yield Line(episode_to_json(record), episode_panel(record, [record.task]))


@command(
    LEARN,
    examples="""
    keepworth memory reward e4f0c1 1
    keepworth memory reward e4f0c1 0.5
    keepworth memory reward d12 0 --by ana
    """,
    encoder=True,
    policy=POLICY,
    context_settings={"ignore_unknown_options": True},  # a negative number looks like one
)
def reward(
    memory: Memory,
    target: Annotated[str, argument("EPISODE|DECISION", "The id of an episode, or of one search in it.")],
    value: Annotated[float, argument("", "How good it was, as a number.")],
    by: Annotated[str | None, option("--by NAME", "Who gives the reward; if not given, who the episode names.")] = None,
    source: Annotated[str, option("--source", "The channel that it came through.")] = "command line",
) -> Lines:
    """Reward an episode, at once or days later: the policy learns what was worth showing."""
    done = memory.reward(target, value, by=by, source=source)
    count = len(done.changed)
    items = "1 item that was shown" if count == 1 else f"{count} items that were shown"
    text = f"reward {value:g}, for {items}." if done.applied else f"nothing changed, as {done.reason}."
    record = {"target": target, "value": value, "applied": done.applied, "reason": done.reason}
    yield Line(record, f"{target}: {text}")


@command(LEARN, examples="keepworth memory pending --json", bounds=True, within=True)
def pending(memory: Memory) -> Lines:
    """List the episodes in which something was done and that have no reward yet, oldest first."""
    ids = memory.pending()
    yield from _episodes(memory, ids)
    if not ids:
        yield NoteLine("No episode waits for a reward.")


@command(LEARN, examples='keepworth memory worth m17 "how to refund"', encoder=True, policy=POLICY)
def worth(memory: Memory, id: Id, query: Annotated[str, argument("", "What is asked.")]) -> Lines:
    """Estimate from rewards what showing one item adds for a question."""
    judged = memory.worth(id, query)
    overall = None if judged.overall is None else _plain(judged.overall)
    record = {**asdict(judged), "overall": overall, "effect": judged.effect, "interval": judged.interval}
    lines = (f"  {line}" for line in _worth_lines(judged))
    yield Line(record, "\n".join((f"{id}  {one_line(memory.get(id).text):.100}", *lines)))


def _worth_lines(worth: Worth) -> Iterator[str]:
    if not worth.seen:
        yield "It was never shown with a reward."
        return
    yield f"where this is asked: reward {worth.with_it:.2f} expected with it first, {worth.without:.2f} otherwise"
    yield f"{worth.sentence}; rewards say something of items here with probability {worth.sure:.2f}"
    if worth.overall is None:
        yield "everywhere: nothing is known, as chance never decided whether it was shown"
        return
    interval = worth.interval
    bounds = "no interval yet" if interval is None else f"95 % {interval[0]:+.2f} to {interval[1]:+.2f}"
    yield f"everywhere: effect {worth.overall.effect:+.2f} ({bounds}) in {worth.tested} episodes: {worth.overall.verdict}"


@command(
    LEARN,
    examples="""
    keepworth memory ledger
    keepworth memory ledger --source manual --all
    """,
    bounds=True,
    within=True,
    policy=POLICY,
)
def ledger(
    memory: Memory,
    as_json: bool,
    item: Annotated[str, option("--item ID", "One item, such as m17.")] = "",
    source: Annotated[str, option("--source", "All items from there.")] = "",
    everything: Annotated[bool, option("--all", "Items that are gone or were never shown with a reward, too.")] = False,
) -> Lines:
    """Say what showing each item added, and what finding out has cost: the policy leaves items out by chance.

    You may look at the interval after every reward: it holds the effect in 19 of 20 memories, whenever you look."""
    if source and source not in (sources := {item.provenance.source for item in memory.store.items(memory.scope)}):
        # What memory learned itself has a source for each episode, and those are not listed.
        raise UnknownName("source", source, [name for name in sources if name and not name.startswith("own:")])
    statement = memory.ledger(items=[item] if item else None, source=source, everything=everything)
    items = memory.store.fetch(memory.scope, [account.item for account in statement.accounts])
    texts = {id: "(gone)" if one is None else one_line(one.text) for id, one in items.items()}
    wide = width() >= 100
    if statement.accounts:
        yield Line(None, f"  item  shown  withheld  success  effect  95 % interval{'     verdict' if wide else ''}")
    for account in statement.accounts:
        text = texts[account.item]
        yield Line({**_plain(account), "text": text}, _account_lines(account, text, wide))
    if as_json:
        yield Line(_plain(statement))
    elif statement.accounts:
        for note in _worth_notes(statement):
            say_text(note)
    else:
        yield NoteLine("No item was shown with a reward yet: `keepworth memory reward` gives one.")


def _account_lines(account: Account, text: str, wide: bool) -> str:
    success = "      -" if math.isnan(account.success) else f"{account.success:7.2f}"
    sure = math.isfinite(account.high)  # with fewer draws an effect would say nothing
    effect = f"{account.effect:+6.2f}" if sure else "     -"
    interval = f"{account.low:+.2f} to {account.high:+.2f}" if sure else "-"
    more = f", about {account.needed:,} more episodes" if 0 < account.needed < 100_000 else ""
    more = ", more than 100,000 more episodes" if account.needed >= 100_000 else more
    counts = f"{account.item:>6}  {account.shown:>5}  {account.withheld:>8}"
    numbers = f"{counts}  {success}  {effect}  {interval:<16}"
    verdict = f"{account.verdict}{more}"
    line = f"{numbers}  {verdict}" if wide else f"{numbers.rstrip()}\n        {verdict}"
    return f"{line}\n{entry('      ', f'{text:.100}', min(width(), 110))}"


def _plain(record: Account | Balance) -> dict[str, Any]:
    """Converts to JSON, with null for unknown values."""
    listed = [part.name for part in fields(record) if part.name != "accounts"]
    listed += [name for name in ("verdict", "needed", "gross", "gain", "net") if hasattr(record, name)]
    values = {name: getattr(record, name) for name in listed}
    return {
        name: None if type(value) is float and not math.isfinite(value) else value for name, value in values.items()
    }


def _worth_notes(statement: Balance) -> list[str]:
    usual = next((account.usual for account in statement.accounts if not math.isnan(account.usual)), math.nan)
    points = statement.points(statement.net)
    overall = "" if math.isnan(usual) else f" ({usual:.2f} over all choices)"
    return [
        "shown, withheld: episodes in which chance decided. success: mean reward of all the times it was shown"
        f"{overall}, which says nothing of what the item did. effect: with it less without it.",
        f"Withholding has cost {statement.gross:.1f} in rewards and brought {statement.gain:.1f}: net {statement.net:.1f}, or "
        f"{points:.2f} points of 100 per rewarded episode ({statement.rewarded:,} of them).",
    ]

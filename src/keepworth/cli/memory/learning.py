"""`keepworth memory reward` and `episode`, and what rewards say: `pending`, `worth`, `ledger`, `evaluate`,
`promote` and `demote`.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from keepworth.cli.command import App
from keepworth.cli.memory.finding import print_hit
from keepworth.cli.memory.group import LEARN, app
from keepworth.cli.memory.opening import DEFAULT, POLICY, Agent, Encoder, File, Json, Session, User, named, opened
from keepworth.cli.output import say, say_json, say_text, width
from keepworth.episodes.text import entry, one_line
from keepworth.memory.place import MemoryPlace

if TYPE_CHECKING:
    from keepworth.memory.memory import Memory
    from keepworth.memory.policy.ledger import Account, Balance
    from keepworth.memory.search.search import Worth

episode_app = App(help="Record an attempt at a task, for rewards to reach what was shown and written in it.")
app.add_typer(episode_app, name="episode", rich_help_panel=LEARN)
EpisodeId = Annotated[str, typer.Argument(metavar="EPISODE", help="Its id, as `begin` printed it.")]


@contextmanager
def learning(file: MemoryPlace, encoder: str = "default", *, make: bool = False, **bounds: Any) -> Iterator[Memory]:
    """The memory as an agent opens it: with the policy that chooses and learns."""
    with opened(file, encoder, make=make, policy=POLICY, **bounds) as memory:
        yield memory


@episode_app.command(
    examples="""
    keepworth memory episode begin "answer a refund request" --user ana
    """
)
def begin(
    task: Annotated[str, typer.Argument(metavar="[TASK]", help="What is attempted, in words.")] = "",
    file: File = DEFAULT,
    user: User = "",
    agent: Agent = "",
    session: Session = "",
    by: Annotated[str, typer.Option("--by", metavar="NAME", help="For whom, where rewards are somebody's word.")] = "",
    as_json: Json = False,
) -> None:
    """Begin an episode, and print its id."""
    with learning(file, make=True) as memory:
        live = memory.episode(task, user_id=user, agent_id=agent, session_id=session, by=by)
        if as_json:
            say_json({"episode": live.id, "task": live.task})
            return
        say(live.id)
        search = shlex.join(["keepworth", "memory", "episode", "search", live.id, *named(file)])
        reward = shlex.join(["keepworth", "memory", "reward", live.id, "1", *named(file)])
        say(f"Next: {search}\nAt the end: {reward}", error=True)


@episode_app.command("search", examples='keepworth memory episode search e4f0c1 "how to refund" --top-k 3')
def search_in(
    episode: EpisodeId,
    query: Annotated[str, typer.Argument(metavar="[QUERY]", help="What is looked for; the task if not given.")] = "",
    file: File = DEFAULT,
    top_k: Annotated[int, typer.Option("--top-k", "-k", metavar="N", min=1, help="How many.")] = 10,
    encoder: Encoder = "default",
    as_json: Json = False,
) -> None:
    """Find as an agent does: the policy chooses, and a reward of the episode reaches what was shown."""
    with learning(file, encoder) as memory:
        hits = memory.reopen(episode).search(query, top_k=top_k)
        for hit in hits:
            print_hit(hit, as_json)
        if not hits:
            say("Nothing found, or nothing that the policy would show.", error=True)
        elif not as_json:
            say(f"The decision is {hits.decision}, for a reward of its own.", error=True)


@episode_app.command(examples='keepworth memory episode act e4f0c1 "sent form B"')
def act(
    episode: EpisodeId,
    action: Annotated[str, typer.Argument(help="What was done.")],
    file: File = DEFAULT,
    as_json: Json = False,
) -> None:
    """Note what was done after the last searches."""
    with learning(file) as memory:
        memory.reopen(episode).act(action)
    if as_json:
        say_json({"episode": episode, "action": action})
        return
    say(f"{episode}: noted.")


@episode_app.command(examples="keepworth memory episode end e4f0c1")
def end(
    episode: EpisodeId,
    outcome: Annotated[str, typer.Option("--outcome", metavar="TEXT", help="How it ended, where not as usual.")] = "",
    file: File = DEFAULT,
    as_json: Json = False,
) -> None:
    """Note that an episode is over. Rewards may still come."""
    outcome = outcome or "completed"
    with learning(file) as memory:
        memory.reopen(episode).end(outcome)
    if as_json:
        say_json({"episode": episode, "outcome": outcome})
        return
    say(f"{episode}: over.")


@episode_app.command("list", examples="keepworth memory episode list --user ana --limit 20")
def list_episodes(
    file: File = DEFAULT,
    user: User = "",
    agent: Agent = "",
    session: Session = "",
    limit: Annotated[int, typer.Option("--limit", "-n", metavar="N", min=1, help="At most this many.")] = 100,
    after: Annotated[str, typer.Option(metavar="EPISODE", help="Go on after this one.")] = "",
    as_json: Json = False,
) -> None:
    """List episodes, oldest first: the id, the reward, the task."""
    with opened(file, "none") as memory:
        ids = memory.episodes(user_id=user, agent_id=agent, session_id=session, limit=limit, after=after)
        _print_episodes(memory, ids, as_json)


def _print_episodes(memory: Memory, ids: list[str], as_json: bool) -> None:
    for id in ids:
        record = memory.episode_record(id)
        reward = record.reward if record.rewards else None
        if as_json:
            say_json(
                {"episode": id, "task": record.task, "reward": reward, "shown": [each.item for each in record.shown]}
            )
        else:
            say(f"{id}  {'no reward' if reward is None else f'{reward:9.3f}'}  {one_line(record.task)}")
    if not ids:
        say("There is no episode: `keepworth memory episode begin TASK` begins one.", error=True)


@episode_app.command("show", examples="keepworth memory episode show e4f0c1")
def show_episode(episode: EpisodeId, file: File = DEFAULT, as_json: Json = False) -> None:
    """Show an episode: the task, what was shown, written and done, and its rewards."""
    from keepworth.cli.episode_panel import episode_panel
    from keepworth.episodes.episode import episode_to_json
    from keepworth.episodes.text import terminal

    with opened(file, "none") as memory:
        record = memory.episode_record(episode)
    if as_json:
        say_json(episode_to_json(record))
    else:
        terminal().print(episode_panel(record, []))


@app.command(
    rich_help_panel=LEARN,
    examples="""
    keepworth memory reward e4f0c1 1
    keepworth memory reward e4f0c1 -0.5
    keepworth memory reward d12 0 --by ana
    """,
    context_settings={"ignore_unknown_options": True},  # a negative number looks like one
)
def reward(
    target: Annotated[
        str, typer.Argument(metavar="EPISODE|DECISION", help="The id of an episode, or of one search in it.")
    ],
    value: Annotated[float, typer.Argument(help="How good it was, as a number.")],
    file: File = DEFAULT,
    by: Annotated[
        str | None,
        typer.Option("--by", metavar="NAME", help="Whose judgement it is; whom the episode is for if not given."),
    ] = None,
    source: Annotated[str, typer.Option("--source", help="What it came through.")] = "command line",
    encoder: Encoder = "default",
    as_json: Json = False,
) -> None:
    """Reward an episode, at once or days later: the policy learns what was worth showing."""
    with learning(file, encoder) as memory:
        done = memory.reward(target, value, by=by, source=source)
        if as_json:
            say_json({"target": target, "value": value, "applied": done.applied, "reason": done.reason})
        elif done.applied:
            say(f"{target}: reward {value:g}, for {many_items(len(done.changed))}.")
        else:
            say(f"{target}: nothing changed, as {done.reason}.")


def many_items(count: int) -> str:
    return "1 item that was shown" if count == 1 else f"{count} items that were shown"


@app.command(rich_help_panel=LEARN, examples="keepworth memory pending --json")
def pending(
    file: File = DEFAULT, user: User = "", agent: Agent = "", session: Session = "", as_json: Json = False
) -> None:
    """List the episodes in which something was done and that have no reward yet, oldest first."""
    with opened(file, "none", user_id=user, agent_id=agent, session_id=session) as memory:
        ids = memory.pending()
        if ids:
            _print_episodes(memory, ids, as_json)
        else:
            say("No episode waits for a reward.", error=True)


@app.command(
    rich_help_panel=LEARN,
    examples='keepworth memory worth m17 "how to refund"',
)
def worth(
    id: Annotated[str, typer.Argument(metavar="ID", help="An item's id, such as m17.")] = "",
    query: Annotated[str, typer.Argument(metavar="QUERY", help="What is asked.")] = "",
    file: File = DEFAULT,
    encoder: Encoder = "default",
    as_json: Json = False,
) -> None:
    """Say what showing one item adds where something is asked, as far as rewards say."""
    if not (id and query):
        from keepworth.episodes.errors import KeepworthError

        raise KeepworthError(
            "worth is of one item, where one thing is asked.",
            "Give ID and QUERY; `keepworth memory ledger` lists what every item added.",
        )
    with learning(file, encoder) as memory:
        found = memory.worth(id, query)
        if as_json:
            overall = None if found.overall is None else _plain(found.overall)
            say_json({**asdict(found), "overall": overall, "effect": found.effect, "interval": found.interval})
            return
        say(f"{id}  {one_line(memory.get(id).text):.100}")
        for line in _worth_lines(found):
            say(f"  {line}")


def _worth_lines(found: Worth) -> Iterator[str]:
    if not found.seen:
        yield "It was never shown with a reward."
        return
    yield f"where this is asked: reward {found.with_it:.2f} expected with it first, {found.without:.2f} otherwise"
    yield f"{found.sentence}; rewards say something of items here with probability {found.sure:.2f}"
    if found.overall is None:
        yield "everywhere: nothing is known, as chance never decided whether it was shown"
        return
    interval = found.interval
    bounds = "no interval yet" if interval is None else f"95 % {interval[0]:+.2f} to {interval[1]:+.2f}"
    yield f"everywhere: effect {found.overall.effect:+.2f} ({bounds}) in {found.tested} episodes: {found.overall.verdict}"


@app.command(
    rich_help_panel=LEARN,
    examples="""
    keepworth memory ledger
    keepworth memory ledger --source manual --exact
    """,
)
def ledger(
    file: File = DEFAULT,
    item: Annotated[str, typer.Option("--item", metavar="ID", help="One item, such as m17.")] = "",
    source: Annotated[str, typer.Option("--source", help="All items from there.")] = "",
    everything: Annotated[
        bool, typer.Option("--all", help="Items that are gone or were never shown with a reward, too.")
    ] = False,
    exact: Annotated[
        bool, typer.Option("--exact", help="Wider intervals, which hold for any number of episodes.")
    ] = False,
    user: User = "",
    agent: Agent = "",
    session: Session = "",
    as_json: Json = False,
) -> None:
    """Say what showing each item added, as far as chance decided whether it was shown, and what that has cost.

    The interval may be looked at after every reward: it misses the effect in at most one of 20 memories, whenever you look."""
    with learning(file, "none", user_id=user, agent_id=agent, session_id=session) as memory:
        if source:
            written = {each.provenance.source for each in memory.store.items(memory.scope)}
            _known_source(source, written)
        statement = memory.ledger(items=[item] if item else None, source=source, everything=everything, exact=exact)
        found = memory.store.fetch(memory.scope, [each.item for each in statement.accounts])
        texts = {id: "(gone)" if one is None else one_line(one.text) for id, one in found.items()}
        if as_json:
            for account in statement.accounts:
                say_json({**_plain(account), "text": texts[account.item]})
            say_json(_plain(statement))
        else:
            _tell_worth(statement, texts)


def _known_source(name: str, known: set[str]) -> None:
    """Raises UnknownName. What memory learned itself has a source for each episode, and those are not listed."""
    from keepworth.episodes.errors import UnknownName

    if name not in known:
        raise UnknownName("source", name, [each for each in known if each and not each.startswith("own:")])


def _plain(record: Account | Balance) -> dict[str, Any]:
    """As JSON: what is not known is null."""
    from dataclasses import asdict

    more = {
        name: getattr(record, name) for name in ("verdict", "needed", "gross", "gain", "net") if hasattr(record, name)
    }
    known = {name: value for name, value in asdict(record).items() if name != "accounts"} | more
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in known.items()
    }


def _tell_worth(statement: Balance, texts: dict[str, str]) -> None:
    wide = width() >= 100
    if statement.accounts:
        say(f"  item  shown  withheld  success  effect  95 % interval{'     verdict' if wide else ''}")
    for each in statement.accounts:
        success = "      -" if math.isnan(each.success) else f"{each.success:7.2f}"
        effect = f"{each.effect:+6.2f}" if each.rows else "     -"
        interval = f"{each.low:+.2f} to {each.high:+.2f}" if math.isfinite(each.high) else "-"
        more = f", about {each.needed:,} more episodes" if 0 < each.needed < 100_000 else ""
        more = ", more than 100,000 more episodes" if each.needed >= 100_000 else more
        counts = f"{each.shown:>5}  {each.withheld:>8}"
        numbers = f"{each.item:>6}  {counts}  {success}  {effect}  {interval:<16}"
        verdict = f"{each.verdict}{more}"
        say(f"{numbers}  {verdict}" if wide else f"{numbers.rstrip()}\n        {verdict}")
        say(entry("      ", f"{texts[each.item]:.100}", min(width(), 110)))
    if not statement.accounts:
        say(
            "No item was shown with a reward yet: reward(decision, value) and episode.reward(value) give one.",
            error=True,
        )
        return
    for note in _worth_notes(statement):
        say_text(note)


def _worth_notes(statement: Balance) -> list[str]:
    usual = next((each.usual for each in statement.accounts if not math.isnan(each.usual)), math.nan)
    points = statement.points(statement.net)
    overall = "" if math.isnan(usual) else f" ({usual:.2f} over all choices)"
    notes = [
        "shown, withheld: episodes in which chance decided. success: mean reward of all the times it was shown"
        f"{overall}, which says nothing of what the item did. effect: with it less without it.",
        f"Withholding has cost {statement.gross:.1f} in rewards and brought {statement.gain:.1f}: net {statement.net:.1f}, or "
        f"{points:.2f} points of 100 per rewarded episode ({statement.rewarded:,} of them).",
    ]
    if statement.unknown:
        notes.append(
            f"{statement.unknown:,} {'search is' if statement.unknown == 1 else 'searches are'} left out: another order was "
            "tried there, and the log does not say how likely each item was to be shown."
        )
    return notes


@app.command(rich_help_panel=LEARN, examples="keepworth memory evaluate memrl --method dr")
def evaluate(
    policy: Annotated[str, typer.Argument(help="A policy by name, such as effect or memrl.")],
    file: File = DEFAULT,
    method: Annotated[str, typer.Option("--method", help="snips or items.")] = "snips",
    encoder: Encoder = "default",
    as_json: Json = False,
) -> None:
    """Estimate what mean reward another policy would have had on the logged choices."""
    with learning(file, encoder) as memory:
        found = memory.evaluate(policy, method=method)
        low, high = found.interval
        if as_json:
            say_json({"policy": policy, **asdict(found), "interval": [low, high]})
            return
        say(
            f"{policy}: mean reward {found.value:.3f}, 95 % {low:.3f} to {high:.3f}, from {found.n:,} choices "
            f"that count as much as {found.effective:.0f} ({found.method})."
        )


@app.command(rich_help_panel=LEARN, examples="keepworth memory promote memrl")
def promote(
    policy: Annotated[str, typer.Argument(help="A policy by name, such as effect or memrl.")],
    file: File = DEFAULT,
    encoder: Encoder = "default",
    as_json: Json = False,
) -> None:
    """Let another policy choose from now on, with what it learns from the whole log. `demote` takes it back."""
    with learning(file, encoder) as memory:
        before = memory.policy
        memory.promote(policy)
        if as_json:
            say_json({"policy": policy, "before": before})
            return
        say(f"{policy} chooses from now on, in the place of {before}. Undo this with: {_again('demote', file)}")


@app.command(rich_help_panel=LEARN, examples="keepworth memory demote")
def demote(file: File = DEFAULT, encoder: Encoder = "default", as_json: Json = False) -> None:
    """Go back to the policy before the last promotion."""
    with learning(file, encoder) as memory:
        before = memory.policy
        policy = memory.demote()
        if as_json:
            say_json({"policy": policy, "before": before})
            return
        say(f"{policy} chooses from now on.")


def _again(verb: str, file: MemoryPlace) -> str:
    return shlex.join(["keepworth", "memory", verb, *named(file)])

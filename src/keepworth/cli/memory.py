"""`keepworth memory`: the verbs of `keepworth.Memory` on the command line."""

from __future__ import annotations

import json
import math
import shlex
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from keepworth.cli.command import App
from keepworth.cli.output import say, say_json
from keepworth.episodes.text import one_line, terminal

if TYPE_CHECKING:
    from keepworth.episodes.model import EncoderIdentity
    from keepworth.memory.adapters.formats import FileFormat
    from keepworth.memory.item import Item
    from keepworth.memory.memory import Memory
    from keepworth.memory.policy.ledger import Account, Balance
    from keepworth.memory.policy.trial import Contrast
    from keepworth.memory.scan import Scan
    from keepworth.memory.store.purge import Erased
    from keepworth.serving.access import Tokens

app = App(help="Keep, find, correct and undo what agents remember.")

File = Annotated[
    Path, typer.Option("--file", "-f", envvar="KEEPWORTH_MEMORY", help="The memory file.", show_default=True)
]
User = Annotated[str, typer.Option("--user", "-u", help="Whose memory.")]
Agent = Annotated[str, typer.Option("--agent", help="Which agent's memory.")]
Session = Annotated[str, typer.Option("--session", help="Which session's memory.")]
Encoder = Annotated[
    str,
    typer.Option(
        "--encoder",
        help="minilm, hashing, hashing:DIMENSION, a folder, URL#MODEL, or none to use words only. Default: the file's own.",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="One line of JSON per result.")]
Where = Annotated[
    list[str] | None,
    typer.Option(
        "--where", metavar="FILTER", help="Metadata, as NAME=VALUE or as JSON; several have to hold together."
    ),
]
Id = Annotated[str, typer.Argument(metavar="ID", help="An item's id, such as m17.")]
DEFAULT, FIRST_DEFAULT = Path("keepworth.mem"), Path("recollect.mem")


@app.command()
def add(
    text: Annotated[str, typer.Argument(help="What to remember; - reads one text per line.")],
    file: File = DEFAULT,
    user: User = "",
    agent: Agent = "",
    session: Session = "",
    kind: Annotated[str, typer.Option(help="fact, episode, case, skill, lesson or core.")] = "fact",
    at: Annotated[str, typer.Option("--at", help="When it happened (ISO 8601).")] = "",
    source: Annotated[str, typer.Option(help="Where it came from; one can roll back by it.")] = "command line",
    encoder: Encoder = "default",
    as_json: Json = False,
) -> None:
    """Remember a text."""
    texts = _lines_given() if text == "-" else [text]
    with _open(file, encoder, make=True) as memory:
        for item in memory.add_many(
            texts, user_id=user, agent_id=agent, session_id=session, kind=kind, event_time=at, source=source
        ):
            _print(item, as_json)


@app.command()
def search(
    query: Annotated[str, typer.Argument(help="What to look for.")],
    file: File = DEFAULT,
    user: User = "",
    agent: Agent = "",
    session: Session = "",
    top_k: Annotated[int, typer.Option("--top-k", "-k", min=1, help="How many.")] = 5,
    mode: Annotated[
        str, typer.Option(help="hybrid, lexical or dense; by default hybrid where there is an encoder.")
    ] = "",
    as_of: Annotated[str, typer.Option(help="What was held true then (ISO 8601).")] = "",
    where: Where = None,
    explain: Annotated[bool, typer.Option("--explain", help="Say what every score is made of.")] = False,
    encoder: Encoder = "default",
    as_json: Json = False,
) -> None:
    """Find what was remembered: what the search finds, in its order. Policies take no part, and nothing is withheld."""
    from keepworth.memory.search.where import from_texts

    wanted = from_texts(where or (), place="--where")
    with _open(file, encoder) as memory:
        hits = memory.search(
            query,
            top_k=top_k,
            user_id=user,
            agent_id=agent,
            session_id=session,
            mode=mode or None,
            as_of=as_of,
            explain=explain,
            where=wanted,
        )
        for hit in hits:
            if as_json:
                _print(hit.item, True, score=hit.score, span=hit.span, conflicts=hit.conflicts)
            else:
                other = f"  (otherwise: {', '.join(hit.conflicts)})" if hit.conflicts else ""
                say(f"{hit.score:8.4f}  {hit.id:>6}  {one_line(hit.passage)}{other}")
                if hit.why is not None:
                    terms = ", ".join(f"{term} {part:.3f}" for term, part in hit.why.terms.items())
                    cosine = "not found" if hit.dense is None else f"cosine {hit.dense:.4f}"
                    say(f"          = {hit.why.formula}; words: {terms or 'not found'}; meaning: {cosine}")
        if not hits:
            say("Nothing found.", error=True)


@app.command("list")
def list_(
    file: File = DEFAULT,
    user: User = "",
    agent: Agent = "",
    session: Session = "",
    limit: Annotated[int, typer.Option(min=1, help="How many.")] = 100,
    after: Annotated[str, typer.Option(help="Go on after this id.")] = "",
    everything: Annotated[bool, typer.Option("--all", help="Superseded, deleted and held back items too.")] = False,
    where: Where = None,
    as_json: Json = False,
) -> None:
    """List items in order of writing."""
    from keepworth.memory.search.where import from_texts

    wanted = from_texts(where or (), place="--where")
    with _open(file, "none") as memory:
        items = memory.get_all(
            user_id=user,
            agent_id=agent,
            session_id=session,
            limit=limit,
            after=after,
            all_states=everything,
            where=wanted,
        )
        for item in items:
            _print(item, as_json)
        if not items:
            say("Nothing found.", error=True)


@app.command()
def show(id: Id, file: File = DEFAULT) -> None:
    """Show everything about an item."""
    from keepworth.memory.item import to_record

    with _open(file, "none") as memory:
        for name, value in to_record(memory.get(id)).items():
            say(f"{name:>14}  {one_line(str(value))}")


@app.command()
def history(id: Id, file: File = DEFAULT) -> None:
    """Show what happened to an item, oldest first."""
    with _open(file, "none") as memory:
        for revision in memory.history(id):
            after = revision.after
            state = "(gone)" if after is None else f"{one_line(after.text)}{_mark(after)}"
            origin = one_line(revision.episode or revision.source)
            say(
                f"{revision.at}  {revision.kind:<9}  {state}{f'  [{origin}]' if origin else ''}  (entry {revision.seq})"
            )


@app.command()
def forget(
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID...]", help="Items to forget.")] = None,
    file: File = DEFAULT,
    purge: Annotated[bool, typer.Option("--purge", help="Erase for good: journal, indexes and vectors too.")] = False,
    older_than: Annotated[
        float | None,
        typer.Option("--older-than", metavar="DAYS", help="In the place of ids: all that was written so long ago."),
    ] = None,
    user: User = "",
    agent: Agent = "",
    session: Session = "",
) -> None:
    """Delete items; with --purge, erase them so that nothing can bring them back.

    With --older-than, those of a person, an agent or a session, or of all: what a rule of retention asks for, by cron."""
    if bool(ids) == (older_than is not None):
        raise typer.BadParameter("give ids, or --older-than DAYS")
    if older_than is not None and not 0 <= older_than <= 100_000:
        raise typer.BadParameter(f"--older-than takes a number of days from 0 to 100,000, got {older_than:g}")
    if ids and (user or agent or session):
        raise typer.BadParameter("--user, --agent and --session go with --older-than: an id names one item")
    with _open(file, "none", user_id=user, agent_id=agent, session_id=session) as memory:
        chosen = ids or _older(memory, older_than or 0.0, everything=purge)
        erased = memory.forget(*chosen, purge_history=purge) if chosen else None
        done = "Erased" if purge else "Deleted"
        say(f"{done} {', '.join(chosen)}." if ids else f"{done} {len(chosen)} items.")
        _tell_of_log(erased)


def _older(memory: Memory, days: float, *, everything: bool) -> list[str]:
    """Ids of what was written so long ago; everything: what is superseded or deleted, too."""
    from datetime import datetime, timedelta, timezone

    until = (datetime.now(timezone.utc).replace(tzinfo=None) - timedelta(days=days)).isoformat()
    items: list[Item] = []
    while page := memory.get_all(limit=1000, after=items[-1].id if items else "", all_states=everything):
        items += page
    return [item.id for item in items if item.written_at <= until]


@app.command()
def erase(
    file: File = DEFAULT,
    user: User = "",
    agent: Agent = "",
    session: Session = "",
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Erase a person, an agent or a session: all that was written, asked and learned there. Nothing brings it back."""
    named = {"user": user, "agent": agent, "session": session}
    whose = ", ".join(f"{part} {name!r}" for part, name in named.items() if name)
    if not whose:
        raise typer.BadParameter("say whose memory is erased: --user, --agent or --session")
    with _open(file, "none") as memory:
        if not yes:
            typer.confirm(f"Erase everything of {whose} in {file}, for good?", abort=True)
        erased = memory.erase(user_id=user, agent_id=agent, session_id=session)
        say(f"Erased {len(erased.ids)} items and {erased.queries} logged queries. Backups and exports are not touched.")
        _tell_of_log(erased)


def _tell_of_log(erased: Erased | None) -> None:
    if erased is not None and not erased.log_emptied:
        say("Another process is reading: run `keepworth memory compact` when it is done.", error=True)


@app.command()
def rollback(
    target: Annotated[str, typer.Argument(metavar="[EPISODE|ROLLBACK]", help="An episode's or a rollback's id.")] = "",
    file: File = DEFAULT,
    source: Annotated[str, typer.Option(help="Undo everything from this source.")] = "",
    since: Annotated[str, typer.Option(help="Undo everything since this snapshot (see `stats`).")] = "",
    entry: Annotated[int, typer.Option(min=0, help="Undo one change, by its number in `history`.")] = 0,
) -> None:
    """Undo an episode, a source, one change, or everything since a snapshot."""
    with _open(file, "none") as memory:
        result = memory.rollback(target, source=source, since=since, entry=entry)
        undo = ["keepworth", "memory", "rollback", result.id, *_named(file)]
        say(
            f"{result.cancelled} journal entries no longer count, {result.restored} count again; "
            f"{len(result.changed)} items changed. Undo this with: {shlex.join(undo)}"
        )
        for seq, reason in result.no_ops:
            say(f"  entry {seq} no longer applies: {reason}")


@app.command()
def stats(file: File = DEFAULT, as_json: Json = False) -> None:
    """Say what is in the file."""
    from dataclasses import asdict

    from keepworth.memory.store.maintenance import statistics

    with _open(file, "none") as memory:
        figures = {**asdict(statistics(memory.store)), "snapshot": memory.snapshot()}
        if as_json:
            _json(figures)
        else:
            for name, value in figures.items():
                say(f"{name.replace('_', ' '):>14}  {value:,}" if isinstance(value, int) else f"{name:>14}  {value}")


@app.command()
def worth(
    file: File = DEFAULT,
    item: Annotated[str, typer.Option("--item", metavar="ID", help="One item, such as m17.")] = "",
    source: Annotated[str, typer.Option("--source", help="All items from there.")] = "",
    everything: Annotated[
        bool, typer.Option("--all", help="Items that are gone or were never shown with a reward, too.")
    ] = False,
    exact: Annotated[
        bool, typer.Option("--exact", help="Wider intervals, which hold for any number of episodes.")
    ] = False,
    trial: Annotated[
        bool, typer.Option("--trial", help="The whole memory, or a source, from blocks of episodes: Memory(trial=...).")
    ] = False,
    page: Annotated[
        Path | None, typer.Option("--page", metavar="FILE.html", help="The same as a page that needs nothing else.")
    ] = None,
    user: User = "",
    agent: Agent = "",
    session: Session = "",
    as_json: Json = False,
) -> None:
    """Say what showing each item added, as far as chance decided whether it was shown, and what that has cost.

    The interval may be looked at after every reward: it misses the effect in at most one of 20 memories, whenever you look."""
    if trial and (item or everything or exact or page):
        raise typer.BadParameter(
            "--trial is of the whole memory or of a source: leave out --item, --all, --exact and --page, which shows trials too"
        )
    if page and as_json:
        raise typer.BadParameter("--page and --json are two forms of the same: leave one out")
    with _open(file, "none", policy="effect", user_id=user, agent_id=agent, session_id=session) as memory:
        trials = memory.trials() if trial or page else []
        if source:
            written = {each.provenance.source for each in memory.store.items(memory.scope)}
            _known_source(source, written | {each.source for each in trials})
        if trial:
            _tell_trials([each for each in trials if source in ("", each.source)], as_json)
            return
        ids = [item] if item else None
        statement = memory.ledger(items=ids, source=source, everything=everything, exact=exact)
        found = memory.store.fetch(memory.scope, [each.item for each in statement.accounts])
        texts = {id: "(gone)" if one is None else one_line(one.text) for id, one in found.items()}
        if as_json:
            for account in statement.accounts:
                _json({**_plain(account), "text": texts[account.item]})
            _json(_plain(statement))
            return
        if page:
            from keepworth.evaluation.worth_page import write_worth_page

            shown = [each for each in trials if source in ("", each.source)]
            say(f"Written: {write_worth_page(page, str(file), statement, texts, shown, _worth_notes(statement))}")
            return
        _tell_worth(statement, texts)


def _known_source(name: str, known: set[str]) -> None:
    """Raises UnknownName. What memory learned itself has a source for each episode, and those are not listed."""
    from keepworth.episodes.errors import UnknownName

    if name not in known:
        raise UnknownName("source", name, [each for each in known if each and not each.startswith("own:")])


def _tell_trials(found: list[Contrast], as_json: bool) -> None:
    for each in found:
        if as_json:
            _json(_plain(each))
            continue
        interval = f"95 % {each.low:+.2f} to {each.high:+.2f}, p = {each.p:.2g}" if math.isfinite(each.high) else ""
        say(
            f"{each.source or 'The whole memory'}: mean reward {each.on:.2f} on, {each.off:.2f} off, effect {each.effect:+.2f}"
            f"{f' ({interval})' if interval else ''}: {each.verdict}. {each.pairs} pairs of blocks of {each.block} episodes, "
            f"{each.episodes:,} episodes with a reward."
        )
    if not found:
        say("No trial was run on this file: open it with Memory(path, trial=Trial(source=...)).", error=True)


def _plain(record: Account | Balance | Contrast) -> dict[str, Any]:
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
    if statement.accounts:
        say("  item  shown  withheld  success  effect  95 % interval     verdict")
    for each in statement.accounts:
        success = "      -" if math.isnan(each.success) else f"{each.success:7.2f}"
        effect = f"{each.effect:+6.2f}" if each.rows else "     -"
        interval = f"{each.low:+.2f} to {each.high:+.2f}" if math.isfinite(each.high) else "-"
        more = f", about {each.needed:,} more episodes" if 0 < each.needed < 100_000 else ""
        more = ", more than 100,000 more episodes" if each.needed >= 100_000 else more
        counts = f"{each.shown:>5}  {each.withheld:>8}"
        say(f"{each.item:>6}  {counts}  {success}  {effect}  {interval:<16}  {each.verdict}{more}")
        say(f"        {texts[each.item]:.100}")
    if not statement.accounts:
        say(
            "No item was shown with a reward yet: reward(decision, value) and episode.reward(value) give one.",
            error=True,
        )
        return
    for note in _worth_notes(statement):
        say(note)


def _worth_notes(statement: Balance) -> list[str]:
    usual = next((each.usual for each in statement.accounts if not math.isnan(each.usual)), math.nan)
    points = statement.points(statement.net)
    notes = [
        "shown, withheld: episodes in which chance decided. success: mean reward of all the times it was shown "
        f"({usual:.2f} over all choices), which says nothing of what the item did. effect: with it less without it.",
        f"Withholding has cost {statement.gross:.1f} in rewards and brought {statement.gain:.1f}: net {statement.net:.1f}, or "
        f"{points:.2f} points of 100 per rewarded episode ({statement.rewarded:,} of them).",
    ]
    if statement.unknown:
        notes.append(
            f"Of {statement.unknown:,} searches the propensities are unknown: their log, of an earlier version or of a policy "
            "that draws whole lists, does not say how likely each item was to be shown. They are left out."
        )
    return notes


@app.command()
def rewrites(
    file: File = DEFAULT,
    state: Annotated[str, typer.Option(help="Only these: on trial, stays, taken back, or changed since.")] = "",
    user: User = "",
    agent: Agent = "",
    session: Session = "",
    as_json: Json = False,
) -> None:
    """List what `Memory.consolidate` rewrote: the state of each rewrite, and what it adds over its originals.

    `keepworth memory rollback --source rewrite:m17` takes one back by hand."""
    from keepworth.memory.policy.rewrites import STATES

    if state and state not in STATES:
        raise typer.BadParameter(f"there are {', '.join(STATES)}", param_hint="--state")
    with _open(file, "none", user_id=user, agent_id=agent, session_id=session) as memory:
        listed = [each for each in memory.rewrites() if state in ("", each.state)]
        for each in listed:
            if as_json:
                known = {} if each.account is None else _plain(each.account)
                named = ("item", "text", "originals", "source", "saves", "state", "why")
                _json({**{name: getattr(each, name) for name in named}, "account": known or None})
                continue
            interval = "" if each.interval is None else f", 95 % {each.interval[0]:+.2f} to {each.interval[1]:+.2f}"
            known_so_far = "no episode yet"
            if each.account is not None:
                shown, withheld = each.account.shown, each.account.withheld
                known_so_far = (
                    f"effect {each.account.effect:+.2f}{interval}, {shown} episodes with it and {withheld} without"
                )
            say(f"{each.source}  {each.state}: {one_line(each.why) or known_so_far}")
            say(f"        {one_line(each.text):.100}")
            say(f"        in the place of {', '.join(each.originals)}, {each.saves:,} characters shorter")
        if not listed:
            say("Nothing was rewritten: Memory.consolidate(rewrite) does that.", error=True)


@app.command()
def check(file: File = DEFAULT, quick: Annotated[bool, typer.Option("--quick", help="Do not replay.")] = False) -> None:
    """Check the file, its indexes, and that the journal leads to what the memory says. Exits with 2 where it does not."""
    from keepworth.memory.store.maintenance import check as check_store

    with _open(file, "none") as memory:
        problems = check_store(memory.store, deep=not quick)
    for problem in problems:
        say(problem)
    if problems:
        raise typer.Exit(2)
    say("Sound.")


@app.command()
def compact(
    file: File = DEFAULT,
    keep_decisions: Annotated[
        int | None, typer.Option(help="Drop the candidate lists of all but the newest N decisions.", min=0)
    ] = None,
) -> None:
    """Give back space and lay vectors out for fast opening. Never changes what the memory says."""
    from keepworth.memory.store.maintenance import compact as compact_store

    with _open(file, "none") as memory:
        before, after = compact_store(memory.store, keep_decisions=keep_decisions)
        say(f"{before / 1e6:.1f} MB before, {after / 1e6:.1f} MB now.")


@app.command()
def backup(target: Annotated[Path, typer.Argument(help="A new file.")], file: File = DEFAULT) -> None:
    """Copy a memory, also while it is in use."""
    from keepworth.memory.store.maintenance import backup as back_up

    with _open(file, "none") as memory:
        say(back_up(memory.store, target))


OWN = "keepworth"
"""The format that loses nothing."""


@app.command("export")
def export_(
    target: Annotated[Path, typer.Argument(help="A new file; - writes to the terminal.")],
    file: File = DEFAULT,
    to: Annotated[
        str,
        typer.Option(
            "--to", help="keepworth, with all history; or what is true now as jsonl, mem0, letta or markdown."
        ),
    ] = OWN,
    user: User = "",
    agent: Agent = "",
    session: Session = "",
    salvage: Annotated[
        bool,
        typer.Option("--salvage", help="Of a damaged memory: what can still be read; says what could not be."),
    ] = False,
) -> None:
    """Write everything, history included, as lines of JSON; or what is true now, in the format of others."""
    from keepworth.memory.errors import MemoryProblem
    from keepworth.memory.store.transfer import exported

    foreign = _file_format(to)
    if foreign is None and (user or agent or session):
        raise MemoryProblem(
            f"--to {OWN} writes the whole memory, with its journal.",
            "Leave --user, --agent and --session out, or take --to jsonl.",
        )
    if salvage:
        if foreign is not None:
            raise MemoryProblem(f"--salvage is for --to {OWN}.", "Import it, then export that memory.")
        _write_salvaged(file, target)
        return
    with _open(file, "none") as memory:
        if foreign is not None:
            _write_foreign(memory, target, foreign, user_id=user, agent_id=agent, session_id=session)
            return
        with closing(exported(memory.store)) as lines:
            _write_lines(lines, target)


def _write_salvaged(file: Path, target: Path) -> None:
    from keepworth.memory.store.salvage import salvaged

    _check_there(file)
    lost: list[str] = []
    with closing(salvaged(file, lost)) as lines:
        _write_lines(lines, target)
    for line in lost:
        say(f"Could not be read: {line}.", error=True)
    say("Everything could be read." if not lost else "`keepworth memory import --unsound` takes what was.", error=True)


def _write_lines(lines: Iterator[str], target: Path) -> None:
    from keepworth.learning.run_folder import check_writable, disk, replacing
    from keepworth.memory.errors import MemoryProblem

    if str(target) == "-":
        for line in lines:
            say_json(json.loads(line), separators=(",", ":"))  # escapes what a terminal obeys: nothing is lost
        return
    if target.exists():
        raise MemoryProblem(f"{target} exists and is not overwritten.", "Give another path.")
    check_writable(target)
    # Half an export looks like a whole one.
    with disk(target), replacing(target) as part, open(part, "w", encoding="utf-8") as out:
        out.writelines(line + "\n" for line in lines)
        out.flush()


def _file_format(name: str) -> FileFormat | None:
    """None for our own. Raises UnknownName."""
    from keepworth.episodes.errors import require_known
    from keepworth.memory.adapters.formats import FORMATS

    return FORMATS.get(require_known("format", name, [OWN, *FORMATS]))


def _write_foreign(memory: Memory, target: Path, foreign: FileFormat, **bounds: Any) -> None:
    from keepworth.learning.run_folder import check_writable, disk, replacing
    from keepworth.memory.errors import MemoryProblem

    items, after = [], ""
    while page := memory.get_all(limit=1000, after=after, **bounds):
        items += page
        after = page[-1].id
    text = foreign.writes(items)
    if str(target) == "-":
        say(text, end="")
        return
    if target.exists():
        raise MemoryProblem(f"{target} exists and is not overwritten.", "Give another path.")
    check_writable(target)
    with disk(target), replacing(target) as part, open(part, "w", encoding="utf-8", newline="\n") as out:
        out.write(text)
    say(f"{len(items)} items.", error=True)


@app.command("import")
def import_(
    source: Annotated[
        Path, typer.Argument(exists=True, dir_okay=False, help="A file that `export` or another program wrote.")
    ],
    file: File = DEFAULT,
    format: Annotated[
        str, typer.Option("--from", help="keepworth, into a new file; or jsonl, mem0, letta or markdown, into any.")
    ] = OWN,
    user: Annotated[str, typer.Option("--user", "-u", help="Whose memory, where the file does not say.")] = "",
    agent: Annotated[str, typer.Option("--agent", help="Which agent's, where the file does not say.")] = "",
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave out what cannot be taken, and say it.")] = False,
    encoder: Encoder = "default",
    unsound: Annotated[
        bool, typer.Option("--unsound", help="Also where the items are not what the journal leads to.")
    ] = False,
    secrets: Annotated[
        str,
        typer.Option(
            "--secrets", help="What becomes of texts with keys or passwords: quarantine, redact, refuse, allow."
        ),
    ] = "quarantine",
    personal: Annotated[
        str, typer.Option("--personal", help="The same for mail addresses, phone and account numbers.")
    ] = "allow",
) -> None:
    """Fill a new memory from an export, with the encoder it had; or add what another program kept. All of it, or nothing.

    It is looked through for secrets, as what a server is given."""
    from keepworth.memory.errors import MemoryProblem
    from keepworth.memory.item import Status
    from keepworth.memory.scan import HELD_FOR, scan_of
    from keepworth.memory.store.transfer import encoder_of, imported

    foreign = _file_format(format)
    if foreign is not None:
        if unsound:
            raise MemoryProblem(f"--unsound is for --from {OWN}.", "Leave it out.")
        scan = scan_of(secrets, personal)
        _take_foreign(source, file, foreign, encoder, skip_bad, scan, user_id=user, agent_id=agent)
        return
    if "redact" in (secrets, personal):
        raise MemoryProblem(
            f"--from {OWN} takes the whole journal as it was, and takes nothing out of it.",
            "Say --secrets quarantine, refuse or allow; or export as jsonl, which has no history.",
        )
    if user or agent or skip_bad:
        raise MemoryProblem(
            f"--from {OWN} takes a whole memory as it was.",
            "Leave --user, --agent and --skip-bad out, or say another --from.",
        )
    # What is not UTF-8 is refused by `imported`, with the place.
    with open(source, encoding="utf-8", errors="replace") as lines:
        identity = encoder_of(lines.readline()) if encoder == "default" else None
    with (
        _open(file, encoder, make=True, identity=identity) as memory,
        open(source, encoding="utf-8") as lines,
    ):
        memory.store.scan = scan_of(secrets, personal)
        before = imported(memory.store, lines, unsound=unsound)
        held = [
            item for item in memory.store.with_status(memory.scope, Status.QUARANTINED) if HELD_FOR in item.metadata
        ]
        say(f"{before} items{_in_quarantine(held)}.")


def _in_quarantine(held: list[Item]) -> str:
    """How many, and for which kinds of secrets."""
    from collections import Counter

    from keepworth.memory.scan import HELD_FOR

    kinds = Counter(kind for item in held for kind in str(item.metadata.get(HELD_FOR, "")).split())
    listed = ", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items()))
    return f", {len(held)} of them in quarantine ({listed}; `keepworth memory quarantine` lists them)" if held else ""


def _take_foreign(
    source: Path, file: Path, foreign: FileFormat, encoder: str, skip_bad: bool, scan: Scan | None, **bounds: str
) -> None:
    from keepworth.memory.adapters.formats import take
    from keepworth.memory.errors import InvalidText
    from keepworth.memory.item import Status

    try:
        text = source.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidText(
            f"{source} is not UTF-8 text ({error}).", "Convert it first, with iconv for example; nothing was imported."
        ) from error
    found = list(foreign.reads(text))
    with _open(file, encoder, make=True) as memory:
        memory.store.scan = scan
        head = memory.store.head()
        items, bad = take(memory, found, where=str(source), skip_bad=skip_bad, **bounds)
        for line in bad:
            say(f"Left out: {line}", error=True)
        new = [item for item in items if int(item.id[1:]) > head]
        held = _in_quarantine([item for item in new if item.status is Status.QUARANTINED])
        texts = {str(each.record.get("text")) for each in found}
        taken = sum(item.text not in texts for item in new)
        say(
            f"{len(new)} items, {len(items) - len(new)} that were there already{f', {len(bad)} left out' if bad else ''}{held}"
            f"{f', {taken} without what was taken out of them' if taken else ''}."
        )


@app.command()
def reembed(
    encoder: Annotated[str, typer.Argument(help="minilm, hashing, hashing:DIMENSION, a folder, or URL#MODEL.")],
    file: File = DEFAULT,
) -> None:
    """Make every vector anew with another encoder; with the same one, those that are missing, as of the parts of long texts in
    older files. Can be interrupted and goes on where it stopped."""
    from rich.progress import Progress

    from keepworth.memory.store.maintenance import reembed as make_again
    from keepworth.models.encoders import encoder as named

    with _open(file, "none") as memory, Progress(console=terminal(), transient=True) as bar:
        job = bar.add_task("vectors", total=None)
        for done, everything in make_again(memory.store, named(encoder)):
            bar.update(job, completed=done, total=everything)
    say(f"{file} now has vectors of {encoder}.")


@app.command()
def quarantine(
    release: Annotated[
        str, typer.Option("--release", metavar="ID", help="Let this item out, for searches to find.")
    ] = "",
    file: File = DEFAULT,
    as_json: Json = False,
) -> None:
    """List the items that are held for a secret in them, or release one."""
    with _open(file, "none") as memory:
        if release:
            _print(memory.release(release), as_json)
            return
        after = ""
        while page := memory.quarantined(after=after):
            for item in page:
                _print(item, as_json)
            after = page[-1].id


@app.command()
def audit(
    file: File = DEFAULT,
    last: Annotated[int, typer.Option("--last", min=1, help="So many entries, the newest.")] = 100,
    as_json: Json = False,
) -> None:
    """Show who did what through `keepworth serve --memory`, by the ids of tokens."""
    from collections import deque

    from keepworth.serving.audit import audit_of, entries

    _tokens(file)  # raises where there is no such memory
    for entry in deque(entries(audit_of(file)), last):
        if as_json:
            _json(entry)
            continue
        who = " ".join(str(entry[name]) for name in ("tenant", "user", "agent") if entry.get(name))
        what = [str(entry.get(name, "")) for name in ("at", "token")] + [who, str(entry["what"])]
        if "tool" in entry:
            what.append(f"{entry['tool']}: {entry.get('outcome', '')}")
        more = f"{entry['times']} times" if "times" in entry else entry.get("status", "")
        say(one_line(f"{'  '.join(each for each in what if each)}  {more}  {' '.join(entry.get('ids', []))}".rstrip()))


tokens_app = App(help="Give and take back the tokens of `keepworth serve --memory`.")
app.add_typer(tokens_app, name="token")


@tokens_app.command("add")
def add_token(
    file: File = DEFAULT,
    tenant: Annotated[str, typer.Option("--tenant", help="Whose memory: each tenant has a file of its own.")] = "",
    user: User = "",
    agent: Agent = "",
    role: Annotated[
        list[str] | None, typer.Option("--role", help="read, write, reward or admin; may be given several times.")
    ] = None,
    name: Annotated[str, typer.Option("--name", help="What it is called in lists.")] = "",
    days: Annotated[float | None, typer.Option("--days", help="Until it ends; never if not given.")] = None,
    shared: Annotated[
        list[str] | None,
        typer.Option(
            "--shared",
            metavar="NAME:read[,write]",
            help="What lies under a name that stands for a team is seen, too; with write it may be changed. May be repeated.",
        ),
    ] = None,
) -> None:
    """Make a token, and show it: the only time, as the file beside the memory holds its hash alone.

    Without --role it may read, write and reward. A server that runs knows it at once."""
    from keepworth.serving.access import new_access, shared_of

    roles = role or ["read", "write", "reward"]
    access = new_access(
        tenant=tenant, user_id=user, agent_id=agent, roles=roles, name=name, days=days, shared=shared_of(shared or ())
    )
    say(_tokens(file).add(access))
    remove = ["keepworth", "memory", "token", "remove", access.id, *_named(file)]
    say(f"{access.id}: {', '.join(access.roles)}. `{shlex.join(remove)}` takes it back.", error=True)


@tokens_app.command("list")
def list_tokens(file: File = DEFAULT, as_json: Json = False) -> None:
    """List tokens by their names, without the tokens."""
    from dataclasses import asdict

    for each in _tokens(file).all():
        if as_json:
            _json(asdict(each))
            continue
        shared = " ".join(f"{name}:{','.join(permissions)}" for name, permissions in each.shared.items())
        bounds = {
            "tenant": each.tenant,
            "user": each.user_id,
            "agent": each.agent_id,
            "shared": shared,
            "until": each.until,
        }
        more = "".join(f"  {part} {one_line(value)}" for part, value in bounds.items() if value)
        say(f"{each.id}  {', '.join(each.roles)}{more}{f'  {one_line(each.name)}' if each.name else ''}")


@tokens_app.command("remove")
def remove_token(
    id: Annotated[str, typer.Argument(metavar="ID", help="Of a token, as `list` gives it.")], file: File = DEFAULT
) -> None:
    """Take a token back. A server that runs refuses it at once."""
    _tokens(file).remove(id)
    say(f"{id} opens nothing any more.")


def _tokens(file: Path) -> Tokens:
    """Raises NotAMemoryFile: tokens beside a file that is not there open nothing, and a mistyped name would not be seen."""
    from keepworth.memory.errors import NotAMemoryFile
    from keepworth.serving.access import Tokens, tokens_of

    if not file.is_file():
        serve = ["keepworth", "serve", "--memory", str(file)]
        raise NotAMemoryFile(
            f"There is no memory at {file}.",
            f"Name the file that is served with --file, or make it: {shlex.join(serve)}.",
        )
    return Tokens(tokens_of(file))


def _named(file: Path) -> list[str]:
    return ["--file", str(file)] if file != DEFAULT else []


def _lines_given() -> list[str]:
    from keepworth.memory.errors import InvalidText

    try:
        texts = [line.rstrip("\n") for line in sys.stdin if line.strip()]
    except UnicodeDecodeError as error:
        raise InvalidText(
            f"Standard input is not UTF-8 text ({error}).",
            "Convert it first, with iconv for example; nothing was stored.",
        ) from error
    if not texts:
        raise InvalidText("Standard input had no text.", "Give one text per line; nothing was stored.")
    return texts


@contextmanager
def _open(
    file: Path,
    encoder: str,
    *,
    make: bool = False,
    identity: EncoderIdentity | None = None,
    policy: str | None = None,
    **bounds: Any,
) -> Iterator[Memory]:
    """identity: the encoder to use where the file has no vectors yet and none was named; bounds: of the scope."""
    import keepworth
    from keepworth.memory.errors import MemoryProblem

    existed = file.exists()
    _check_there(file, make)
    chosen: Any = None if encoder == "none" else encoder
    if identity is not None and not existed:
        chosen = keepworth.encoder(encoder, identity)
    memory = keepworth.Memory(file, encoder=chosen, policy=policy, **bounds)
    try:
        yield memory
    except BaseException:
        # What could not be done leaves no empty memory behind.
        with suppress(MemoryProblem):
            existed = existed or bool(memory.store.head())
        memory.close()
        if not existed:
            file.unlink(missing_ok=True)
        raise
    memory.close()


def _check_there(file: Path, make: bool = False) -> None:
    """Raise NotAMemoryFile where there is no file. make: that is right, unless it is there under its first name."""
    from keepworth.memory.errors import NotAMemoryFile

    if file.exists():
        return
    if file == DEFAULT and FIRST_DEFAULT.exists():
        raise NotAMemoryFile(
            f"There is no {file} here, but {FIRST_DEFAULT}, which is what it was called in earlier versions.",
            f"Rename it, or say --file {FIRST_DEFAULT}.",
        )
    if not make:
        raise NotAMemoryFile(
            f"There is no memory at {file}.", "`keepworth memory add` makes one; --file names another."
        )


def _print(item: Item, as_json: bool, **more: Any) -> None:
    if as_json:
        from keepworth.memory.item import to_record

        _json({**to_record(item), **more})
    else:
        say(f"{item.id:>6}  {one_line(item.text)}{_mark(item)}")


def _mark(item: Item) -> str:
    if item.deleted:
        return "  (deleted)"
    if item.superseded_by:
        return f"  (superseded by {item.superseded_by})"
    return "" if item.status.value == "active" else f"  ({item.status.value})"


def _json(record: Any) -> None:
    say_json(record)

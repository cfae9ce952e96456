"""What the commands `keepworth memory reward`, `pending`, `worth`, `ledger`, `review` and `episode` print."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

from keepworth.base.errors import UnknownName
from keepworth.base.text import entry, one_line
from keepworth.cli.memory.group import Call, Line, Lines, NoteLine, again, item_line, plain, prints
from keepworth.cli.memory.items import hit_line
from keepworth.cli.output import say_text, width
from keepworth.serving import verbs

if TYPE_CHECKING:
    from keepworth.memory.choose.ledger import Account, Balance
    from keepworth.memory.choose.review import Review, ReviewedItem
    from keepworth.memory.search.search import Worth


@prints(verbs.begin_episode)
def _begin(call: Call) -> Lines:
    live = call()
    yield Line({"episode": live["id"], "task": live["task"]}, live["id"])
    yield NoteLine(
        f"Next: {again(call.file, 'episode', 'search', live['id'])}\nAt the end: {again(call.file, 'reward', live['id'], '1')}"
    )


@prints(verbs.episode_search)
def _search(call: Call) -> Lines:
    hits = call()
    yield from map(hit_line, hits)
    if hits:
        yield NoteLine(f"The decision is {hits.decision}, for a reward of its own.")
    else:
        yield NoteLine("Nothing found, or nothing that the policy would show.")


@prints(verbs.episode_act)
def _act(call: Call) -> Lines:
    call()
    id = call.values["id"]
    yield Line({"episode": id, "action": call.values["action"]}, f"{id}: noted.")


@prints(verbs.episode_end)
def _end(call: Call) -> Lines:
    id, outcome = call.values["id"], call.values["outcome"] or "completed"
    call(outcome=outcome)
    yield Line({"episode": id, "outcome": outcome}, f"{id}: over.")


@prints(verbs.list_episodes)
def _list(call: Call) -> Lines:
    return _episodes(call, "There is no episode: `keepworth memory episode begin TASK` begins one.")


def _episodes(call: Call, none: str) -> Lines:
    """Yield a line for each of the episodes that the verb lists, or the sentence `none`."""
    ids = call()
    for id in ids:
        record = call.memory.episode_record(id)
        reward = record.reward if record.rewards else None
        views = [view.item for view in record.shown]
        text = f"{id}  {'no reward' if reward is None else f'{reward:9.3f}'}  {one_line(record.task)}"
        yield Line({"episode": id, "task": record.task, "reward": reward, "shown": views}, text)
    if not ids:
        yield NoteLine(none)


@prints(verbs.get_episode)
def _show(call: Call) -> Lines:
    from keepworth.cli.episode_panel import episode_panel

    record = call.memory.episode_record(call.values["id"])
    yield Line(call(), episode_panel(record, [record.task]))


@prints(verbs.reward)
def _reward(call: Call) -> Lines:
    done = call()
    target, value = call.values["target"], call.values["value"]
    count = len(done.changed)
    items = "1 item that was shown" if count == 1 else f"{count} items that were shown"
    text = f"reward {value:g}, for {items}." if done.applied else f"nothing changed, as {done.reason}."
    record = {"target": target, "value": value, "applied": done.applied, "reason": done.reason}
    yield Line(record, f"{target}: {text}")


@prints(verbs.pending)
def _pending(call: Call) -> Lines:
    return _episodes(call, "No episode waits for a reward.")


@prints(verbs.item_worth)
def _worth(call: Call) -> Lines:
    worth, id = call(), call.values["id"]
    overall = None if worth.overall is None else _plain(worth.overall)
    record = {**asdict(worth), "overall": overall, "effect": worth.effect, "interval": worth.interval}
    lines = (f"  {line}" for line in _worth_lines(worth))
    yield Line(record, "\n".join((f"{id}  {one_line(call.memory.get(id).text):.100}", *lines)))


def _worth_lines(worth: Worth) -> Iterator[str]:
    if not worth.seen:
        yield "It was never shown with a reward."
        return
    yield f"where this is asked: reward {worth.with_it:.2f} expected with it first, {worth.without:.2f} otherwise"
    yield f"{worth.sentence}; probability that items make a difference here: {worth.sure:.2f}"
    if worth.overall is None:
        yield "everywhere: nothing is known, as chance never decided whether it was shown"
        return
    interval = worth.interval
    bounds = "no interval yet" if interval is None else f"95 % {interval[0]:+.2f} to {interval[1]:+.2f}"
    yield f"everywhere: effect {worth.overall.effect:+.2f} ({bounds}) in {worth.tested} episodes: {worth.overall.verdict}"


@prints(verbs.ledger)
def _ledger(call: Call) -> Lines:
    store, scope, source = call.memory.store, call.memory.scope, call.values["source"]
    if source and source not in (sources := {item.provenance.source for item in store.items(scope)}):
        # What memory learned itself has a source for each episode, and those are not listed.
        raise UnknownName("source", source, [name for name in sources if name and not name.startswith("own:")])
    statement = call()
    items = store.fetch(scope, [account.item for account in statement.accounts])
    texts = {id: "(gone)" if one is None else one_line(one.text) for id, one in items.items()}
    wide = width() >= 100
    if statement.accounts:
        yield Line(None, f"  item  shown  withheld  success  effect  95 % interval{'     verdict' if wide else ''}")
    for account in statement.accounts:
        text = texts[account.item]
        yield Line({**_plain(account), "text": text}, _account_lines(account, text, wide))
    if call.as_json:
        yield Line(_plain(statement))
    elif statement.accounts:
        for note in _worth_notes(statement):
            say_text(note)
    else:
        yield NoteLine("No item was shown with a reward yet: `keepworth memory reward` gives one.")


@prints(verbs.review)
def _review(call: Call) -> Lines:
    chosen = {name: ids for name in CHOICES if (ids := call.values[name])}
    if chosen:
        yield from map(item_line, call.memory.settle(**chosen))
        return
    from keepworth.memory.choose.review import GROUPS

    review = call()
    heading = ""
    for reviewed in review.items:
        if reviewed.group != heading:
            heading = reviewed.group
            yield Line(None, f"{heading[0].upper()}{heading[1:]}:")
        record = {"item": reviewed.item.id, "text": reviewed.item.text, **_plain_review(reviewed)}
        text = entry(f"{reviewed.item.id:>6}  ", f"{one_line(reviewed.item.text):.100}", min(width(), 110))
        words = (reviewed.sentence, reviewed.needs, "You decided to keep it." if reviewed.settled else "")
        sentence = entry("        ", " ".join(filter(None, words)), min(width(), 110)) if heading != GROUPS[-1] else ""
        yield Line(record, "\n".join(filter(None, (text, sentence))))
    yield NoteLine(str(review))
    if review.items and not review.rewarded:
        yield NoteLine("No turn had an outcome yet: see `keepworth hook --install`, or `keepworth memory reward`.")
    elif sys.stdin.isatty() and sys.stdout.isatty() and not call.as_json:
        yield from _ask_of_each(call, review)
    elif costing := review.of("costs"):
        options = [word for reviewed in costing for word in ("--retire", reviewed.item.id)]
        yield NoteLine(f"To retire what costs: {again(call.file, 'review', *options)}; --undo brings it back.")


CHOICES = ("retire", "keep", "pin", "undo")
KEYS = {name[0]: name for name in CHOICES}
KEYS_HELP = "r retires it, k keeps it, p pins it, u undoes the last; Enter goes on, q ends"


def _ask_of_each(call: Call, review: Review) -> Lines:
    """Asks of each note that nobody has decided about, and does what the key says."""
    from keepworth.memory.choose.review import ALWAYS

    open_ones = [one for one in review.items if one.group != ALWAYS and not one.settled]
    done: list[tuple[int, str]] = []  # places of the notes that were decided about, with their ids
    place = 0
    while place < len(open_ones):
        reviewed = open_ones[place]
        id = reviewed.item.id
        yield NoteLine(
            f"\n{id} ({place + 1} of {len(open_ones)}, {reviewed.group})  {one_line(reviewed.item.text):.100}"
        )
        yield NoteLine(KEYS_HELP)
        key = _read_key()
        if key == "q":
            return
        if key == "u":
            if done:
                place, last = done.pop()
                call.memory.settle(undo=[last])
                yield NoteLine(f"{last}: undone.")
            else:
                yield NoteLine("There is nothing to undo yet.")
            continue
        if key in KEYS:
            call.memory.settle(**{KEYS[key]: [id]})
            done.append((place, id))
            yield NoteLine(f"{id}: {PAST[KEYS[key]]}.")
        if key in KEYS or key in ("\r", "\n", " "):
            place += 1


PAST = {"retire": "retired", "keep": "kept", "pin": "pinned"}


def _read_key() -> str:
    """Reads a key, without Enter; "q" where there is none."""
    import click

    try:
        return click.getchar().lower()
    except (EOFError, KeyboardInterrupt):
        return "q"


def _plain_review(reviewed: ReviewedItem) -> dict[str, Any]:
    """Converts to JSON, with null for unknown values."""
    numbers = {name: getattr(reviewed, name) for name in ("points", "low", "high")}
    finite = {name: value if math.isfinite(value) else None for name, value in numbers.items()}
    words = {name: getattr(reviewed, name) for name in ("sentence", "needs", "settled")}
    return {"group": reviewed.group, **finite, **words}


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


@prints(verbs.list_trials)
def _trials(call: Call) -> Lines:
    trials = call()
    for trial in trials:
        yield Line({**plain(trial), "why": trial.why}, one_line(f"{trial.share:>4.0%}  {trial.why}"))
    if not trials:
        yield NoteLine("No policy was tried in place of another: `keepworth serve --policy NAME --replaces OLD` does.")


@prints(verbs.list_outcomes)
def _outcomes(call: Call) -> Lines:
    listed = call()
    for row in listed:
        name = row.source or "people"
        off = "" if row.counts else ", switched off"
        weight = f", weight {row.weight:g}" if row.kind == "signal" else ""
        mean = "" if row.mean is None else f"mean {row.mean:.2f}"
        lost = [f"{count:,} {what}" for what in ("repeated", "unknown", "unusable") if (count := getattr(row, what))]
        about = f"{row.about}{weight}{off}" if row.about else ""
        text = f"{row.rewards:>7,}  {mean:<10} {name:<28} {'; '.join(filter(None, [about, ', '.join(lost)]))}".rstrip()
        shown = row.rewards or lost or not row.counts
        yield Line(plain(row), one_line(text) if shown else None)
    if not any(row.rewards for row in listed):
        yield NoteLine("There is no reward yet. `keepworth memory reward EPISODE 1` gives one.")

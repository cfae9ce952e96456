"""The web page of a served memory: its files, and the routes that only it uses, with counts, rewards over time, and one line for
each episode. The files need no token, as they hold nothing of a memory.

The page asks for a token and then calls the same routes as programs do. Its Content-Security-Policy forbids it to load anything
from elsewhere, to run scripts other than its own, and to turn text into HTML."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from itertools import accumulate
from typing import Annotated, Any

from pydantic import Field

from keepworth.charts import PARTS, STYLE, asset
from keepworth.charts.charts import Panel, Series, as_elements
from keepworth.memory.item import ALL
from keepworth.memory.store import episode_log, log
from keepworth.serving.calls import ReadyAnswer, RouteAnswers
from keepworth.serving.memory_routes import ServedCaller
from keepworth.serving.verb import verb
from keepworth.serving.verbs import Bounds, Page

KINDS = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
SECURITY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": SECURITY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
INDEX = "index.html"
NEWEST = 5_000
"""The curve shows at most this many rewards, the latest."""
POINTS = 40
"""The curve has at least this many points, if there are as many rewards."""


def page_table() -> dict[tuple[str, str], RouteAnswers]:
    """Return the functions that answer, by method and path."""
    names = [path.name for path in (files("keepworth.serving") / "page").iterdir()]
    texts = {name: asset(name, "keepworth.serving", "page") for name in names}
    texts |= {name: asset(name) for name in (STYLE, PARTS)}
    return {
        ("GET", "/" if name == INDEX else f"/page/{name}"): _file(name, text.encode()) for name, text in texts.items()
    }


def _file(name: str, content: bytes) -> RouteAnswers:
    answer = ReadyAnswer(content, f"{KINDS[name.rpartition('.')[2]]}; charset=utf-8", headers=HEADERS)
    return lambda call: answer


@verb("GET /overview", "read")
def overview(caller: ServedCaller) -> Any:
    """Count items, episodes and rewards, and give the course of the rewards."""
    memory, nobody = caller.memory, bool(caller.nobody())
    with memory.store.database.reading() as connection:
        items, episodes = episode_log.totals(connection, memory.scopes.seen(), nobody)
        news = log.news(connection, memory.scope, log.cancelled(connection), newest=NEWEST)
    rewards = [reward.value for reward in news if not (nobody and reward.scope.user)]
    return {
        "items": items,
        "episodes": episodes,
        "rewards": len(rewards),
        "all_rewards": len(news) < NEWEST,
        "mean": sum(rewards) / len(rewards) if rewards else None,
        "curve": as_elements(reward_curve(rewards)) if len(rewards) > 1 else None,
        "policy": memory.policy,
    }


def reward_curve(rewards: Sequence[float]) -> Panel:
    """Plot the means of blocks of rewards, and the mean of all until then. `rewards` are in order, at least two."""
    size = max(1, len(rewards) // POINTS)
    ends = [*range(size, len(rewards), size), len(rewards)]
    blocks = [rewards[max(0, end - size) : end] for end in ends]
    sums = list(accumulate(rewards))
    means = Series(
        "trained",
        f"mean of {size:,}" if size > 1 else "each reward",
        tuple(ends),
        tuple(sum(block) / len(block) for block in blocks),
    )
    until = Series("untrained", "mean until then", tuple(ends), tuple(sums[end - 1] / end for end in ends))
    return Panel("reward", "Reward", "", (until, means), wide=True, along="reward")


@verb("GET /episode_summaries", "read", Bounds, Page, key="episodes", pages=True)
def list_episode_summaries(
    caller: ServedCaller,
    words: Annotated[str, Field(max_length=1000, description="Words that the task has, all of them.")] = "",
    **options: Any,
) -> Any:
    """List episodes in one line each, the newest first, a page at a time."""
    memory = caller.memory
    memory.flush()
    scope = memory.scopes.narrowed(*(options.get(name, ALL) for name in Bounds.model_fields))
    before = memory._begun(options["after"]).number if options.get("after") else episode_log.LAST
    nobody = bool(caller.nobody(options.get("user_id", "")))
    with memory.store.database.reading() as connection:
        return episode_log.summaries(
            connection,
            lambda id: memory.store.scope_named(connection, id),
            scope,
            before,
            options.get("limit", 100),
            nobody,
            words,
        )

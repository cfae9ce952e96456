"""What people look at and programs do without: episodes in one line each, rewards over time, the policy, how the server is set
up, and training runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, Protocol

import keepworth
from keepworth.memory.memory import Memory
from keepworth.memory.store import log
from keepworth.page.charts import Panel, Series, as_elements
from keepworth.serving import memory_requests as asks
from keepworth.serving.access import Access
from keepworth.serving.calls import NotServed
from keepworth.serving.memory_routes import MemoryRoute, Wanted, of_nobody
from keepworth.serving.wire import plain

NEWEST = 5_000
"""Rewards that the curve is made of."""
POINTS = 40
"""Of that curve."""


class RunFolders(Protocol):
    """Training runs in a folder, as JSON."""

    def page(self, after: str, limit: int) -> tuple[list[dict[str, Any]], str]:
        """Runs in one line each, the newest first, those after the one of this name; and the name to go on from, "" at the
        end."""

    def run(self, name: str) -> dict[str, Any]:
        """One run, with its curves and tables. Raises KeepworthError."""


def overview(wanted: Wanted) -> Any:
    """How much there is, and what rewards say: their course, and what trials came to."""
    memory, nobody = wanted.open.memory, bool(of_nobody(wanted, ""))
    with memory.store.database.reading() as connection:
        items, episodes = log.totals(connection, memory._seen(), nobody)
        news = log.news(connection, memory.scope, log.cancelled(connection), newest=NEWEST)
    rewards = [each.value for each in news if not (nobody and each.scope.user)]
    return {
        "items": items,
        "episodes": episodes,
        "rewards": len(rewards),
        "all_rewards": len(news) < NEWEST,
        "mean": sum(rewards) / len(rewards) if rewards else None,
        "curve": as_elements(reward_curve(rewards)) if len(rewards) > 1 else None,
        "trials": [] if nobody else [{**plain(each), "verdict": each.verdict} for each in memory.trials()],
        "policy": memory.policy,
    }


def reward_curve(rewards: Sequence[float]) -> Panel:
    """Means of blocks of equal length, and the mean of all until then. rewards: in order, at least two."""
    size = max(1, len(rewards) // POINTS)
    ends = [*range(size, len(rewards), size), len(rewards)]
    blocks = [rewards[max(0, end - size) : end] for end in ends]
    sums = list(accumulate(rewards))
    means = Series(
        "trained",
        f"mean of {size:,}" if size > 1 else "each reward",
        tuple(ends),
        tuple(sum(each) / len(each) for each in blocks),
    )
    until = Series("untrained", "mean until then", tuple(ends), tuple(sums[end - 1] / end for end in ends))
    return Panel("reward", "Reward", "", (until, means), wide=True, along="reward")


def list_episode_summaries(wanted: Wanted) -> Any:
    """Episodes in one line each, the newest first, a page at a time."""
    query, memory = wanted.query, wanted.open.memory
    memory._decisions.flush()
    scope = memory._narrowed(query.user_id, query.agent_id, query.session_id)
    before = memory._begun(query.after).number if query.after else log.LAST
    nobody = bool(of_nobody(wanted, query.user_id))
    with memory.store.database.reading() as connection:
        found = log.summaries(
            connection, lambda id: memory.store.scope_named(connection, id), scope, before, query.limit, nobody
        )
    return {"episodes": plain(found), "next": found[-1].id if len(found) == query.limit else ""}


OVERVIEW_ROUTES = (
    MemoryRoute("GET", "/overview", "read", overview),
    MemoryRoute("GET", "/episode_summaries", "read", list_episode_summaries, query=asks.EpisodesQuery),
)


# -- the policy --------------------------------------------------------------------------------------------------------


def get_policy(wanted: Wanted) -> Any:
    """Which policy chooses, and which others there are."""
    memory = _whole(wanted)
    with memory.store.database.reading() as connection:
        gone = log.cancelled(connection)
        promoted = log.promotions(connection, lambda id: memory.store.scope_named(connection, id), memory.scope, gone)
    return {"policy": memory.policy, "promoted": promoted, "known": list(memory._known_policies())}


def estimate_policy(wanted: Wanted) -> Any:
    """What mean reward another policy would have had on the logged choices."""
    estimate = _whole(wanted).evaluate(wanted.query.policy, method=wanted.query.method)
    return {**plain(estimate), "low": estimate.interval[0], "high": estimate.interval[1]}


def promote_policy(wanted: Wanted, gateway: bool) -> Any:
    """Let another policy choose from now on."""
    memory, name = _whole(wanted), wanted.body.policy
    if gateway and memory.learning is not None and memory.learning.finds_itself(name):
        raise NotServed(
            f"Policy {name!r:.60} finds items itself, and this server has a gateway, which searches within a prompt's bounds.",
            "Choose one that ranks what a search finds, such as 'default'.",
            status=422,
            code="InvalidPolicy",
            about="policy",
            value=name,
        )
    memory.promote(name)
    return {"policy": memory.policy}


def demote_policy(wanted: Wanted) -> Any:
    """Back to the policy before the last promotion."""
    return {"policy": _whole(wanted).demote()}


def _whole(wanted: Wanted) -> Memory:
    """What a policy learns is of all people of a tenant. Raises NotServed."""
    if not wanted.access.whole:
        raise NotServed(
            "The policy is of everybody, and this token is bound to a person or an agent.",
            "Use a token with the role admin that is bound to nobody.",
            status=403,
            about="Authorization",
        )
    return wanted.open.memory


_OF_THE_MACHINE = ("memory", "listens to", "gateway to")
"""Settings that are for whoever runs the server alone."""


# -- the server --------------------------------------------------------------------------------------------------------


def get_settings(wanted: Wanted, settings: Mapping[str, Any]) -> Any:
    """What this server runs with."""
    encoder = wanted.open.memory.store.encoder_identity()
    made = {} if encoder is None else {"vectors of": encoder.model, "dimensions": encoder.dimension}
    hidden = () if wanted.access.operates else _OF_THE_MACHINE
    shown = {name: value for name, value in settings.items() if name not in hidden}
    return {"keepworth": keepworth.__version__, **shown, **made}


def list_runs(wanted: Wanted, runs: RunFolders | None) -> Any:
    """Training runs in the folder that the server was given, the newest first, a page at a time."""
    _operates(wanted.access)
    if runs is None:
        return {"runs": [], "next": "", "folder": ""}
    page, next_ = runs.page(wanted.query.after, wanted.query.limit)
    return {"runs": page, "next": next_, "folder": str(getattr(runs, "folder", ""))}


def get_run(wanted: Wanted, runs: RunFolders | None) -> Any:
    """A training run, with its curves and tables."""
    _operates(wanted.access)
    if runs is None:
        raise NotServed("This server was given no folder of runs.", "Start it with --runs FOLDER.", status=404)
    return runs.run(wanted.path["name"])


def _operates(access: Access) -> None:
    if not access.operates:
        raise NotServed(
            "Training runs are for whoever runs the server.",
            "Use a token of the tenant '' with the role admin.",
            status=403,
            about="Authorization",
        )


def server_routes(
    settings: Mapping[str, Any], runs: RunFolders | None = None, *, gateway: bool = False
) -> tuple[MemoryRoute, ...]:
    return (
        MemoryRoute("GET", "/policy", "admin", get_policy),
        MemoryRoute("GET", "/policy/estimate", "admin", estimate_policy, query=asks.EstimateQuery),
        MemoryRoute("POST", "/policy/promote", "admin", partial(promote_policy, gateway=gateway), asks.PolicyBody, writes=True),
        MemoryRoute("POST", "/policy/demote", "admin", demote_policy, writes=True),
        MemoryRoute("GET", "/settings", "admin", partial(get_settings, settings=settings)),
        MemoryRoute("GET", "/runs", "admin", partial(list_runs, runs=runs), query=asks.RunsQuery),
        MemoryRoute("GET", "/runs/{name}", "admin", partial(get_run, runs=runs)),
    )  # fmt: skip


def checked_settings(options: Mapping[str, Any]) -> dict[str, Any]:
    """Of what a server was started with, what can be shown: plain values, and what is done with secrets."""
    listed = {name: value for name, value in options.items() if isinstance(value, (str, int, float, bool, type(None)))}
    actions = getattr(options.get("scan"), "actions", {})
    return {**listed, **{f"{kind} in a text": action for kind, action in actions.items()}}

"""What people look at and programs do without: episodes in one line each, rewards over time, the policy, how the server is set
up, and training runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Annotated, Any, Protocol

from pydantic import Field

import keepworth
from keepworth.memory.memory import Memory
from keepworth.memory.store import log
from keepworth.memory.verbs import MOST, Bounds, Page, Verb, verb
from keepworth.page.charts import Panel, Series, as_elements
from keepworth.serving.access import Access
from keepworth.serving.calls import NotServed
from keepworth.serving.memory_routes import ServedCaller
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


@verb("GET /overview", "read")
def overview(caller: ServedCaller) -> Any:
    """How much there is, and what rewards say: their course."""
    memory, nobody = caller.memory, bool(caller.nobody())
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


@verb("GET /episode_summaries", "read", Bounds, Page, key="episodes", pages=True)
def list_episode_summaries(caller: ServedCaller, **options: Any) -> Any:
    """Episodes in one line each, the newest first, a page at a time."""
    memory = caller.memory
    memory._decisions.flush()
    scope = memory._narrowed(*(options.get(name, "") for name in Bounds.model_fields))
    before = memory._begun(options["after"]).number if options.get("after") else log.LAST
    nobody = bool(caller.nobody(options.get("user_id", "")))
    with memory.store.database.reading() as connection:
        return log.summaries(
            connection,
            lambda id: memory.store.scope_named(connection, id),
            scope,
            before,
            options.get("limit", 100),
            nobody,
        )


# -- the policy --------------------------------------------------------------------------------------------------------


@verb("GET /policy", "admin")
def get_policy(caller: ServedCaller) -> Any:
    """Which policy chooses, and which others there are."""
    memory = _whole(caller)
    with memory.store.database.reading() as connection:
        gone = log.cancelled(connection)
        promoted = log.promotions(connection, lambda id: memory.store.scope_named(connection, id), memory.scope, gone)
    return {"policy": memory.policy, "promoted": promoted, "known": list(memory._known_policies())}


@verb("GET /policy/estimate", "admin")
def estimate_policy(
    caller: ServedCaller,
    policy: str,
    method: Annotated[str, Field(json_schema_extra={"enum": ["snips", "items"]})] = "snips",
) -> Any:
    """What mean reward another policy would have had on the logged choices."""
    estimate = _whole(caller).evaluate(policy, method=method)
    return {**plain(estimate), "low": estimate.interval[0], "high": estimate.interval[1]}


@verb("POST /policy/demote", "admin", key="policy", writes=True)
def demote_policy(caller: ServedCaller) -> str:
    """Back to the policy before the last promotion."""
    return _whole(caller).demote()


def _whole(caller: ServedCaller) -> Memory:
    """What a policy learns is of all people of a tenant. Raises NotServed."""
    if not caller.access.whole:
        raise NotServed(
            "The policy is of everybody, and this token is bound to a person or an agent.",
            "Use a token with the role admin that is bound to nobody.",
            status=403,
            about="Authorization",
        )
    return caller.memory


# -- the server --------------------------------------------------------------------------------------------------------

_OF_THE_MACHINE = ("memory", "listens to", "gateway to")
"""Settings that are for whoever runs the server alone."""


def server_verbs(
    settings: Mapping[str, Any], runs: RunFolders | None = None, *, gateway: bool = False
) -> tuple[Verb, ...]:
    """The verbs that depend on how the server was started."""

    @verb("POST /policy/promote", "admin", key="policy", writes=True)
    def promote_policy(caller: ServedCaller, policy: str) -> str | None:
        """Let another policy choose from now on."""
        memory = _whole(caller)
        if gateway and memory.learning is not None and memory.learning.finds_itself(policy):
            raise NotServed(
                f"Policy {policy!r:.60} finds items itself, and this server has a gateway, which searches within a prompt's "
                "bounds.",
                "Choose one that ranks what a search finds, such as 'default'.",
                status=422,
                code="InvalidPolicy",
                about="policy",
                value=policy,
            )
        memory.promote(policy)
        return memory.policy

    @verb("GET /settings", "admin")
    def get_settings(caller: ServedCaller) -> Any:
        """What this server runs with."""
        encoder = caller.memory.store.encoder_identity()
        made = {} if encoder is None else {"vectors of": encoder.model, "dimensions": encoder.dimension}
        hidden = () if caller.access.operates else _OF_THE_MACHINE
        shown = {name: value for name, value in settings.items() if name not in hidden}
        return {"keepworth": keepworth.__version__, **shown, **made}

    @verb("GET /runs", "admin")
    def list_runs(
        caller: ServedCaller,
        limit: Annotated[int, Field(ge=1, le=MOST)] = 50,
        after: Annotated[str, Field(description="`next` of the page before.")] = "",
    ) -> Any:
        """Training runs in the folder that the server was given, the newest first, a page at a time."""
        _operates(caller.access)
        page, then = runs.page(after, limit) if runs is not None else ([], "")
        return {"runs": page, "next": then, "folder": str(getattr(runs, "folder", ""))}

    @verb("GET /runs/{name}", "admin")
    def get_run(caller: ServedCaller, name: str) -> Any:
        """A training run, with its curves and tables."""
        _operates(caller.access)
        if runs is None:
            raise NotServed("This server was given no folder of runs.", "Start it with --runs FOLDER.", status=404)
        return runs.run(name)

    return (
        overview, list_episode_summaries, get_policy, estimate_policy, promote_policy, demote_policy, get_settings,
        list_runs, get_run,
    )  # fmt: skip


def _operates(access: Access) -> None:
    if not access.operates:
        raise NotServed(
            "Training runs are for whoever runs the server.",
            "Use a token of the tenant '' with the role admin.",
            status=403,
            about="Authorization",
        )


def checked_settings(options: Mapping[str, Any]) -> dict[str, Any]:
    """Of what a server was started with, what can be shown: plain values, and what is done with secrets."""
    listed = {name: value for name, value in options.items() if isinstance(value, (str, int, float, bool, type(None)))}
    actions = getattr(options.get("scan"), "actions", {})
    return {**listed, **{f"{kind} in a text": action for kind, action in actions.items()}}

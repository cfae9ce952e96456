"""What a handle on a memory sees, where it writes, and what other users share with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from keepworth.memory.errors import InvalidScope, SharedReadOnly
from keepworth.memory.item import ALL, EVERYWHERE, Item, LeftOut, Reach, Scope, named_parts, one_spelling


class Scopes:
    """The scope of a handle, in which it writes, and the users whose items are shared with it: their names, with True for those
    that it may change, `within` an agent and a session."""

    def __init__(
        self, scope: Scope, shares: Mapping[str, bool] | None = None, within: Mapping[str, str] | None = None
    ) -> None:
        self.own = scope
        self.shares = shares or {}
        self._within = within or {}

    def inside(self, user_id: str, agent_id: str, session_id: str, shared: Mapping[str, bool] | None = None) -> Scopes:
        """Return the scopes of a narrower handle. Raises InvalidScope.

        Args:
            user_id, agent_id, session_id: The bounds that the call names; `ALL` for one that is left out.
            shared: The users whose items are shared, with True for those that the handle may change; None for those
                shared so far.
        """
        narrower = self.narrowed(user_id, agent_id, session_id)
        if shared is not None:
            if not narrower.user:
                raise InvalidScope(
                    "shared= is for a handle of a user: give user_id, as one without sees every user there is"
                )
            return Scopes(
                narrower, {EVERYWHERE.narrowed(user=name).user: bool(writes) for name, writes in shared.items()}
            )
        return Scopes(narrower, {} if self.shares_with(user_id) else self.shares, self._bounds(agent_id, session_id))

    def narrowed(self, user_id: str = ALL, agent_id: str = ALL, session_id: str = ALL) -> Scope:
        """Return the scope that a call with these bounds writes to. Raises InvalidScope, SharedReadOnly.

        Args:
            user_id, agent_id, session_id: The bounds that the call names; `ALL` for one that is left out.
        """
        # Only leaving it out stands for all users: a user "", 0 or None is a mistake, and must not open the whole memory.
        parts = named_parts(user=user_id, agent=agent_id, session=session_id)
        if not parts:
            return self.own
        if not self.shares_with(user_id):
            return self.own.narrowed(**parts)
        shared = one_spelling(parts.pop("user"))
        if not self.shares[shared]:
            raise SharedReadOnly(
                f"{shared!r:.60} is shared here for reading alone: leave user_id out, which writes to your own memory "
                "and searches both"
            )
        return replace(self.own.narrowed(**parts), user=shared)

    def seen(self, user_id: str = ALL, agent_id: str = ALL, session_id: str = ALL) -> Scope:
        """Return the scope in which a call searches: with shared items if it names no user, and with the items of a shared user
        alone if it names that user.

        Args:
            user_id, agent_id, session_id: The bounds that the call names; `ALL` for one that is left out.
        """
        if not self.shares:
            return self.narrowed(user_id, agent_id, session_id)
        bounds = self._bounds(agent_id, session_id)
        if self.shares_with(user_id):
            return Scope(self.own.tenant, user_id).narrowed(**bounds)
        narrower = self.narrowed(user_id, agent_id, session_id)
        if not isinstance(user_id, LeftOut):
            return narrower
        return Reach(*narrower.parts(), tuple(Scope(self.own.tenant, name).narrowed(**bounds) for name in self.shares))

    def asking(self, agent_id: str = ALL, session_id: str = ALL, *, seen: Scope) -> Scope:
        """Return the scope under which a search is logged: with shared items, that of the handle that asks.

        Args:
            agent_id, session_id: The bounds that the call names; `ALL` for one that is left out.
            seen: The scope in which is searched.
        """
        return self.narrowed(ALL, agent_id, session_id) if self.shares else seen

    @property
    def changeable(self) -> Scope:
        """The scope in which items may be changed by their ids: the handle's own, and shared ones that may be changed."""
        writable = tuple(Scope(self.own.tenant, name) for name, writes in self.shares.items() if writes)
        return Reach(*self.own.parts(), writable) if writable else self.own

    def home(self, item: Item) -> Scope:
        """Return the scope through which an item is changed: the handle's own or a shared one. Raises SharedReadOnly."""
        if self.own.contains(item.scope):
            return self.own
        home = Scope(self.own.tenant, item.scope.user)
        if not self.shares[home.user]:
            raise SharedReadOnly(
                f"{item.id} is of {home.user!r:.60}, which is shared here for reading alone: nothing was changed; "
                "what you write yourself may say otherwise"
            )
        return home

    def shares_with(self, user_id: str) -> bool:
        """Whether the items of this user are shared with the handle."""
        return isinstance(user_id, str) and one_spelling(user_id) in self.shares

    def _bounds(self, agent_id: str, session_id: str) -> dict[str, str]:
        """Return the agent and the session to which a call limits shared items."""
        return {**self._within, **named_parts(agent=agent_id, session=session_id)}

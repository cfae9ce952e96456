"""Decides what is done with secrets, and on request with personal data, that are about to be written.

The rules of `keepworth.memory.sensitive` find them, together with a function that the user may give.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from keepworth.base.errors import KeepworthError, require_known
from keepworth.memory.errors import RefusedText
from keepworth.memory.item import Item, Provenance, Status
from keepworth.memory.operations import Assignment, Draft
from keepworth.memory.sensitive import PERSONAL, RULES, SECRETS, ScanHook, SensitiveSpan, apart, sensitive
from keepworth.records.episode import Operation, OperationKind

ACTIONS = ("allow", "redact", "quarantine", "refuse")
"""What is done with a text in which something is found, mildest first. "redact" stores the text without it; "quarantine" stores
it as it is, and no search shows it until it is released; "refuse" raises RefusedText."""
HELD_FOR = "held_for"
"""The key in an item's metadata that says why it is in quarantine."""

MOST_CLEAN = 8192
_CLEAN: set[int] = set()
"""Hashes of texts, with the kinds that were looked for, in which the rules found nothing: each text of a call passes several
times. The texts themselves are not kept, as they may have to be erased."""


@dataclass(frozen=True, slots=True)
class Scan:
    """What is looked for in texts, and what is done with it. Raises UnknownName for an action or a kind that does not exist.

    Args:
        actions: One of `ACTIONS` for each kind; a kind that is not named is allowed.
        hook: Called on each text beside the rules; it may find kinds of its own.
    """

    actions: Mapping[str, str] = field(default_factory=lambda: dict.fromkeys(SECRETS, "quarantine"), hash=False)
    hook: ScanHook | None = None

    def __post_init__(self) -> None:
        for kind, action in self.actions.items():
            require_known("action", action, ACTIONS)
            if self.hook is None:
                require_known("kind of what is scanned for", kind, tuple(RULES))

    def spans(self, text: str) -> list[SensitiveSpan]:
        """Return where a text holds something that is not allowed."""
        wanted = tuple(kind for kind, action in self.actions.items() if action != "allow" and kind in RULES)
        by_rules = [] if (seen := hash((text, wanted))) in _CLEAN else sensitive(text, wanted)
        if not by_rules:
            if len(_CLEAN) >= MOST_CLEAN:
                _CLEAN.clear()
            _CLEAN.add(seen)
        if self.hook is None:
            return by_rules
        return apart([*by_rules, *(span for span in self.hook(text) if self._action(span) != "allow")])

    def redacted(self, text: str, *, alone: bool = False) -> str:
        """Return the text with everything removed that is found in it; with `alone`, only what has the action "redact"."""
        for span in reversed(self.spans(text)):
            if not alone or self._action(span) == "redact":
                text = f"{text[: span.start]}[{span.kind.replace('_', ' ')} removed]{text[span.end :]}"
        return text

    def storable(self, text: str) -> str:
        """Return the text with what has the action "redact" removed; "" if it would be refused."""
        spans = self.spans(text)
        if any(self._action(span) == "refuse" for span in spans):
            return ""
        return self.redacted(text, alone=True) if spans else text

    def screened(self, act: Operation, draft: Draft) -> tuple[Operation, Draft, str]:
        """Return an operation and its draft as they may be carried out, and the kinds for which the item goes into quarantine
        (separated by spaces). Raises RefusedText."""
        if act.kind not in _WRITING:
            return act, draft, ""
        origin = draft.provenance
        kinds = self._kinds([act.text, draft.key, *_origin(origin).values(), *_strings(draft.metadata)])
        if not kinds:
            return act, draft, ""
        if kinds["redact"]:
            act = replace(act, text=self.redacted(act.text, alone=True))
            metadata = _mapped(draft.metadata, lambda text: self.redacted(text, alone=True))
            origin = replace(origin, **_mapped(_origin(origin), lambda text: self.redacted(text, alone=True)))
            draft = replace(draft, key=self.redacted(draft.key, alone=True), metadata=metadata, provenance=origin)
        held = " ".join(kinds["quarantine"])
        if held and act.kind is not OperationKind.UPDATE:
            draft = replace(draft, status=Status.QUARANTINED, metadata={**draft.metadata, HELD_FOR: held})
        return act, draft, held

    def holds(self, item: Item) -> str:
        """Return the kinds for which this item, if written, would go into quarantine; "" for none. Raises RefusedText."""
        kinds = self._kinds([item.text, item.key, *_origin(item.provenance).values(), *_strings(item.metadata)])
        return " ".join(kinds.get("quarantine", ()))

    def screened_fields(self, act: Assignment, released: bool) -> Assignment:
        """Return an assignment as it may be carried out; it is not scanned if it releases the item. Raises RefusedText."""
        kinds = {} if released else self._kinds(list(_strings(act.fields.get("metadata"))))
        if not kinds:
            return act
        metadata = act.fields["metadata"]
        if kinds["redact"]:
            metadata = _mapped(metadata, lambda text: self.redacted(text, alone=True))
        fields = {**act.fields, "metadata": metadata}
        if kinds["quarantine"]:
            fields["status"] = Status.QUARANTINED.value
            fields["metadata"] = {**metadata, HELD_FOR: " ".join(kinds["quarantine"])}
        return replace(act, fields=fields)

    def _kinds(self, texts: Iterable[str]) -> dict[str, list[str]]:
        """Return the kinds that are found in the texts, by action; {} if nothing is found. Raises RefusedText."""
        spans = [span for text in texts for span in self.spans(text)]
        kinds = {action: sorted({span.kind for span in spans if self._action(span) == action}) for action in ACTIONS}
        if kinds["refuse"]:
            raise RefusedText(
                f"the text holds what is not remembered here: {', '.join(kinds['refuse'])}; nothing was written",
                "Say it without.",
            )
        return kinds if spans else {}

    def _action(self, span: SensitiveSpan) -> str:
        return self.actions.get(span.kind, "allow")


_WRITING = (OperationKind.ADD, OperationKind.UPDATE, OperationKind.SUPERSEDE, OperationKind.MERGE)


def _origin(provenance: Provenance) -> dict[str, str]:
    """Return the fields of a provenance that are text."""
    return {name: value for name, value in asdict(provenance).items() if isinstance(value, str)}


def _strings(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield from _strings(key)
            yield from _strings(part)
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _strings(part)


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {_mapped(key, change): _mapped(part, change) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_mapped(part, change) for part in value]
    return value


def scan_of(secrets: str = "quarantine", personal: str = "allow") -> Scan | None:
    """Return a scan with one action for all kinds of secrets and one for personal data; None if both are "allow"."""
    for what, action in (("secrets", secrets), ("personal", personal)):
        if action not in ACTIONS:
            raise KeepworthError(f"{what}={action!r:.40} does not exist.", f"Use one of {', '.join(ACTIONS)}.")
    if secrets == personal == "allow":
        return None
    return Scan({**dict.fromkeys(SECRETS, secrets), **dict.fromkeys(PERSONAL, personal)})

"""What is done with secrets, and on request with what tells who somebody is, where they are about to be written.

They are found by the rules of `keepworth.memory.sensitive`; a function of one's own is asked beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from keepworth.episodes.episode import Operation, OperationKind
from keepworth.episodes.errors import KeepworthError, require_known
from keepworth.memory.errors import RefusedText
from keepworth.memory.item import Item, Provenance, Status
from keepworth.memory.operations import Assignment, Draft
from keepworth.memory.sensitive import PERSONAL, RULES, SECRETS, ScanHook, SensitiveSpan, apart, sensitive

ACTIONS = ("allow", "redact", "quarantine", "refuse")
"""What is done with an item in which something is found, mildest first. redact: without it; quarantine: kept as it is, and shown
by no search until it is released."""
HELD_FOR = "held_for"
"""The name in an item's metadata that says why it is in quarantine."""


@dataclass(frozen=True, slots=True)
class Scan:
    """What is done with each kind that is found. actions: by kind, as of `ACTIONS`; a kind that is not named is allowed. hook: is
    asked beside the rules, and may find kinds of its own. Raises UnknownName for actions and kinds that there are not."""

    actions: Mapping[str, str] = field(default_factory=lambda: dict.fromkeys(SECRETS, "quarantine"), hash=False)
    hook: ScanHook | None = None

    def __post_init__(self) -> None:
        for kind, action in self.actions.items():
            require_known("action", action, ACTIONS)
            if self.hook is None:
                require_known("kind of what is scanned for", kind, tuple(RULES))

    def spans(self, text: str) -> list[SensitiveSpan]:
        """What is in a text and not allowed."""
        wanted = [kind for kind, action in self.actions.items() if action != "allow" and kind in RULES]
        by_hook = [] if self.hook is None else [span for span in self.hook(text) if self._action(span) != "allow"]
        return apart([*sensitive(text, wanted), *by_hook])

    def redacted(self, text: str, *, alone: bool = False) -> str:
        """The text without what is found in it. alone: without what is to be redacted, and nothing else."""
        for span in reversed(self.spans(text)):
            if not alone or self._action(span) == "redact":
                text = f"{text[: span.start]}[{span.kind.replace('_', ' ')} removed]{text[span.end :]}"
        return text

    def screened(self, act: Operation, draft: Draft) -> tuple[Operation, Draft, str]:
        """An operation as it may be carried out, and the kinds for which its item is held in quarantine, "" for none. Raises
        RefusedText."""
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
        """The kinds for which a write of this item would be held in quarantine, "" for none. Raises RefusedText."""
        kinds = self._kinds([item.text, item.key, *_origin(item.provenance).values(), *_strings(item.metadata)])
        return " ".join(kinds.get("quarantine", ()))

    def screened_fields(self, act: Assignment, released: bool) -> Assignment:
        """The same for fields that are set. released: whether the item is let out by this, which a secret does not hinder."""
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
        """What is found in them, by what is done with it; {} where nothing is. Raises RefusedText."""
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
    """What is said in words of where an item came from."""
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
    """One action for all kinds of secrets, and one for what is personal; None where both are allowed."""
    for what, action in (("secrets", secrets), ("personal", personal)):
        if action not in ACTIONS:
            raise KeepworthError(f"{what}={action!r:.40} does not exist.", f"Use one of {', '.join(ACTIONS)}.")
    if secrets == personal == "allow":
        return None
    return Scan({**dict.fromkeys(SECRETS, secrets), **dict.fromkeys(PERSONAL, personal)})

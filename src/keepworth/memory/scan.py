"""What should not be remembered: secrets, and on request what tells who somebody is, found in texts before they are written.

The rules go by form: prefixes that makers of keys gave them, the check digits of cards and accounts, what stands after
"password is". They miss what has no form, such as a secret that is told as a story, and they err where something has the form by
chance: how often is measured by `python -m benchmarks.agents.scan`. A function of one's own is asked beside them.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from keepworth.episodes.episode import Operation, OperationKind
from keepworth.episodes.errors import KeepworthError, require_known
from keepworth.memory.errors import RefusedText
from keepworth.memory.item import Status
from keepworth.memory.operations import Draft

ACTIONS = ("allow", "redact", "quarantine", "refuse")
"""What is done with an item in which something is found, mildest first. redact: without it; quarantine: kept as it is, and shown
by no search until it is released."""
SECRETS = ("api_key", "private_key", "password", "card_number")
PERSONAL = ("email", "phone", "iban")
HELD_FOR = "held_for"
"""The name in an item's metadata that says why it is in quarantine."""

_PREFIXED = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"sk-[A-Za-z0-9_-]{20,}|[sr]k_(?:live|test)_[A-Za-z0-9]{16,}|gh[opusr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{22,}"
    r"|(?:AKIA|ASIA)[0-9A-Z]{16}(?![0-9A-Za-z])|AIza[0-9A-Za-z_-]{35}|xox[abeoprs]-[0-9A-Za-z-]{10,}|glpat-[0-9A-Za-z_-]{20,}"
    r"|hf_[A-Za-z0-9]{30,}|npm_[A-Za-z0-9]{36}|pypi-[A-Za-z0-9_-]{50,}|SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}"
    r"|kw_[A-Za-z0-9_-]{43}|eyJ[A-Za-z0-9_-]{10,400}\.[A-Za-z0-9_-]{10,4000}\.[A-Za-z0-9_-]{10,})"
)
_NAMED = re.compile(
    r"\b(?:api[ _-]?key|access[ _-]?(?:key|token)|auth[ _-]?token|client[ _-]?secret|secret[ _-]?key|bearer)\b"
    r"(?:\s+is\b|\s*[:=])?\s*[\"'`]?(?P<value>[A-Za-z0-9_\-./+=]{16,})",
    re.IGNORECASE,
)
_URL = re.compile(r"\b[a-z][a-z0-9+.-]{1,20}://[^\s/:@]{1,64}:(?P<value>[^\s/:@]{3,128})@", re.IGNORECASE)
_PRIVATE = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY-----|\Z)"
)
_PASSWORD = re.compile(
    r"\b(?:(?P<own>my|our|his|her|their|your|the)\s+)?(?:[\w-]{1,20}\s{1,3}){0,2}?(?:password|passphrase|passwd|passcode|pwd)\b"
    r"(?:\s+(?:for|of|to)\s+(?:[\w.@-]{1,60}\s+){1,4}?)?\s*(?P<link>is|was|=|:)\s*(?P<quote>[\"'`]?)(?P<value>[^\s\"'`]{4,128})",
    re.IGNORECASE,
)
_CARD = re.compile(
    r"(?<![\d.,-])(?:[3-6]\d{12,18}|[3-6]\d{3}(?P<gap>[ -])\d{4}(?P=gap)\d{4}(?P=gap)\d{4}(?:(?P=gap)\d{3})?"
    r"|3\d{3}(?P<wide>[ -])\d{6}(?P=wide)\d{4,5})(?![\d]|[.,-]\d)"
)
_CARD_FORMS = (
    ("34", (15,)),
    ("37", (15,)),
    ("35", (16,)),
    ("3", (14,)),
    ("4", (13, 16, 19)),
    ("5", (16,)),
    ("6", (16, 19)),
)
"""Lengths of numbers by their beginnings, as the large networks give them."""
_EMAIL = re.compile(r"\b[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63})*\.[A-Za-z]{2,24}\b")
_PHONE = re.compile(
    r"(?<![\w.+-])(?:\+\d{1,3}[ .-]?(?:\(\d{1,5}\)[ .-]?)?\d{2,8}(?:[ .-]?\d{2,8}){1,4}"
    r"|(?:\(\d{3}\) ?|\d{3}[ .-])\d{3}[ .-]\d{4})(?![\w-]|\.\d)"
)
_IBAN = re.compile(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,4})?\b")


@dataclass(frozen=True, slots=True)
class SensitiveSpan:
    """kind: of `SECRETS`, `PERSONAL` or a hook's own; start, end: in characters of the text."""

    kind: str
    start: int
    end: int


ScanHook = Callable[[str], Iterable[SensitiveSpan]]


def sensitive(text: str, kinds: Iterable[str] = (*SECRETS, *PERSONAL)) -> list[SensitiveSpan]:
    """What the rules find, in order of place."""
    found: list[SensitiveSpan] = []
    for kind in kinds:
        found += [SensitiveSpan(kind, *span) for span in _RULES[kind](text)]
    return _apart(found)


def _apart(found: Iterable[SensitiveSpan]) -> list[SensitiveSpan]:
    """Of two that overlap the one that was found by the earlier rule."""
    kept: list[SensitiveSpan] = []
    for span in found:
        place = bisect_left(kept, span.start, key=lambda each: each.end - 1)
        if place == len(kept) or span.end <= kept[place].start:
            kept.insert(place, span)
    return kept


Spans = Iterable[tuple[int, int]]


def _api_keys(text: str) -> Spans:
    yield from (match.span() for match in _PREFIXED.finditer(text))
    yield from (match.span("value") for match in _NAMED.finditer(text) if _random(match["value"]))
    if "://" in text:
        yield from (match.span("value") for match in _URL.finditer(text))


def _random(value: str) -> bool:
    """Whether it looks drawn rather than spelled."""
    return sum(each.isdigit() for each in value) >= 2 and any(each.isalpha() for each in value)


def _private_keys(text: str) -> Spans:
    return (match.span() for match in _PRIVATE.finditer(text)) if "PRIVATE KEY-----" in text else ()


def _passwords(text: str) -> Spans:
    lowered = text.lower()
    if "pass" not in lowered and "pwd" not in lowered:
        return
    for match in _PASSWORD.finditer(text):
        value = match["value"].rstrip(".,;:!?)")
        if len(value) >= 4 and _secret_like(value, match):
            yield match.start("value"), match.start("value") + len(value)


def _secret_like(value: str, match: re.Match[str]) -> bool:
    """A quoted word is one. Of others, those with a digit, a sign, or a capital inside: "password is required" tells none."""
    if match["quote"]:
        return True
    odd = any(each.isdigit() for each in value) or any(not each.isalnum() for each in value.replace("-", ""))
    return odd or (value[1:] != value[1:].lower() and not value.isupper())


def _cards(text: str) -> Spans:
    for match in _CARD.finditer(text):
        digits = [int(each) for each in match[0] if each.isdigit()]
        begins = f"{digits[0]}{digits[1]}"
        lengths = next(lengths for begin, lengths in _CARD_FORMS if begins.startswith(begin))
        if len(digits) in lengths and len(set(digits)) > 1 and _luhn(digits):
            yield match.span()


def _luhn(digits: list[int]) -> bool:
    """ISO/IEC 7812-1, annex B."""
    doubled = [2 * each - 9 * (each > 4) for each in digits[-2::-2]]
    return (sum(doubled) + sum(digits[-1::-2])) % 10 == 0


def _emails(text: str) -> Spans:
    return (match.span() for match in _EMAIL.finditer(text)) if "@" in text else ()


def _phones(text: str) -> Spans:
    """International ones, which begin with a plus sign, and those written as in North America: no others have a form."""
    for match in _PHONE.finditer(text):
        if 9 <= sum(each.isdigit() for each in match[0]) <= 15:
            yield match.span()


def _ibans(text: str) -> Spans:
    """ISO 13616: moved to the end and with letters as numbers, the first four make a remainder of 1 modulo 97."""
    for match in _IBAN.finditer(text):
        plain = match[0].replace(" ", "")
        if 15 <= len(plain) <= 34 and int("".join(str(int(each, 36)) for each in plain[4:] + plain[:4])) % 97 == 1:
            yield match.span()


_RULES: Mapping[str, Callable[[str], Spans]] = {
    "api_key": _api_keys,
    "private_key": _private_keys,
    "password": _passwords,
    "card_number": _cards,
    "email": _emails,
    "phone": _phones,
    "iban": _ibans,
}


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
                require_known("kind of what is scanned for", kind, tuple(_RULES))

    def spans(self, text: str) -> list[SensitiveSpan]:
        """What is in a text and not allowed."""
        wanted = [kind for kind, action in self.actions.items() if action != "allow" and kind in _RULES]
        own = [] if self.hook is None else [each for each in self.hook(text) if self._action(each) != "allow"]
        return _apart([*sensitive(text, wanted), *own])

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
        texts = [act.text, draft.key, *_strings(draft.metadata)]
        spans = [span for text in texts for span in self.spans(text)]
        if not spans:
            return act, draft, ""
        kinds = {action: sorted({each.kind for each in spans if self._action(each) == action}) for action in ACTIONS}
        if kinds["refuse"]:
            raise RefusedText(
                f"the text holds what is not remembered here: {', '.join(kinds['refuse'])}; nothing was written",
                "Say it without.",
            )
        if kinds["redact"]:
            act = replace(act, text=self.redacted(act.text, alone=True))
            metadata = _mapped(draft.metadata, lambda text: self.redacted(text, alone=True))
            draft = replace(draft, key=self.redacted(draft.key, alone=True), metadata=metadata)
        held = " ".join(kinds["quarantine"])
        if held and act.kind is not OperationKind.UPDATE:
            draft = replace(draft, status=Status.QUARANTINED, metadata={**draft.metadata, HELD_FOR: held})
        return act, draft, held

    def _action(self, span: SensitiveSpan) -> str:
        return self.actions.get(span.kind, "allow")


_WRITING = (OperationKind.ADD, OperationKind.UPDATE, OperationKind.SUPERSEDE, OperationKind.MERGE)


def _strings(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from _strings(key)
            yield from _strings(each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _strings(each)


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {_mapped(key, change): _mapped(each, change) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_mapped(each, change) for each in value]
    return value


def scan_of(secrets: str = "quarantine", personal: str = "allow") -> Scan | None:
    """One action for all kinds of secrets, and one for what is personal; None where both are allowed."""
    for what, action in (("secrets", secrets), ("personal", personal)):
        if action not in ACTIONS:
            raise KeepworthError(f"{what}={action!r:.40} does not exist.", f"Use one of {', '.join(ACTIONS)}.")
    if secrets == personal == "allow":
        return None
    return Scan({**dict.fromkeys(SECRETS, secrets), **dict.fromkeys(PERSONAL, personal)})

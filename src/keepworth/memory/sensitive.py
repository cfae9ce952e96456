"""Secrets, and on request what tells who somebody is, found in texts.

The rules go by form: prefixes that makers of keys gave them, the check digits of cards and accounts, what stands after
"password is". They miss what has no form, such as a secret that is told as a story, and they err where something has the form by
chance: how often is measured by `python -m benchmarks.agents.scan`. Nothing but the standard library is imported here: hooks of
hosts are started anew for each event.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

SECRETS = ("api_key", "private_key", "password", "card_number")
PERSONAL = ("email", "phone", "iban")
HIDDEN = "[secret]"

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
        found += [SensitiveSpan(kind, *span) for span in RULES[kind](text)]
    return apart(found)


def apart(spans: Iterable[SensitiveSpan]) -> list[SensitiveSpan]:
    """Of two that overlap the one that was found by the earlier rule."""
    kept: list[SensitiveSpan] = []
    for span in spans:
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


RULES: Mapping[str, Callable[[str], Spans]] = {
    "api_key": _api_keys,
    "private_key": _private_keys,
    "password": _passwords,
    "card_number": _cards,
    "email": _emails,
    "phone": _phones,
    "iban": _ibans,
}


# In commands and what they print, the names of variables and fields are what says that a value is a secret.
_ASSIGNED = re.compile(
    r"""(?ix)
    ( ["']? [\w.-]* (?: password | passwd | passphrase | secret | api[_-]?key | access[_-]?key | private[_-]?key | token
      | credential ) s? ["']? \s* (?: [:=] | \bis\b ) \s* ["']? )
    (?! \[secret\] ) [^\s"',;&]{5,} [^\s"',;&.!?]
    """
)


def without_secrets(text: str) -> str:
    """`text` with `[secret]` in the place of what must not be sent on. The same again for what it gave.

    >>> without_secrets("curl -H 'Authorization: Bearer abcdef123456abcdef' https://ana:hunter2@example.org")
    "curl -H 'Authorization: Bearer [secret]' https://ana:[secret]@example.org"
    """
    for span in reversed(sensitive(text, SECRETS)):
        text = f"{text[: span.start]}{HIDDEN}{text[span.end :]}"
    return _ASSIGNED.sub(rf"\1{HIDDEN}", text)

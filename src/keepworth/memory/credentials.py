"""Passwords, keys and tokens in texts: found by their shape, and taken out before a text is kept or sent anywhere.

Shapes that are published by who gives them, and values that a text itself calls a password, a key or a token. What looks like
nothing in particular is not found.
"""

from __future__ import annotations

import re

HIDDEN = "[secret]"
_SHAPES = re.compile(
    r"""
    -----BEGIN\ [A-Z ]*PRIVATE\ KEY-----.*?(?:-----END\ [A-Z ]*PRIVATE\ KEY-----|\Z)
    | \beyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]*                      # JSON web tokens
    | \b(?:sk|pk|rk)[-_](?:live|test|ant|proj|or)?[-_]?[\w-]{16,}  # OpenAI, Anthropic, Stripe
    | \b(?:gh[oprsu]|glpat|kw|hf|npm|pypi|xox[abeprs]|dop_v1|shpat)[-_][\w-]{16,}
    | \bgithub_pat_\w{20,}
    | \b(?:AKIA|ASIA)[0-9A-Z]{16}\b
    | \bAIza[\w-]{30,}
    """,
    re.X | re.S,
)
_IN_ADDRESS = re.compile(r"(?<=://)([^\s/:@]*):([^\s/@]+)(?=@)")
_NAMED = re.compile(
    r"""(?ix)
    ( \b(?: bearer | basic ) \s+
    | ["']? [\w.-]* (?: password | passwd | passphrase | secret | api[_-]?key | access[_-]?key | private[_-]?key
      | auth[_-]?token | access[_-]?token | refresh[_-]?token | token | credential ) s? ["']? \s* (?: [:=] | \bis\b ) \s*
      (?: bearer \s+ )? ["']? )
    (?! \[secret\] ) ( [^\s"',;&]{5,} [^\s"',;&.!?] )
    """
)


def without_credentials(text: str) -> str:
    """`text` with `[secret]` in the place of what must not be kept. The same again for what it gave.

    >>> without_credentials("curl -H 'Authorization: Bearer abcdef123456' https://ana:hunter2@example.org")
    "curl -H 'Authorization: Bearer [secret]' https://ana:[secret]@example.org"
    """
    text = _SHAPES.sub(HIDDEN, text)
    text = _IN_ADDRESS.sub(rf"\1:{HIDDEN}", text)
    return _NAMED.sub(rf"\1{HIDDEN}", text)

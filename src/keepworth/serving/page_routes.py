"""The page that people look at, over a memory that is served: its files. They need no token, as they hold nothing of a memory.

The page asks for a token and then calls the routes that programs call, from the same address. Its policy lets it load nothing
from elsewhere, run no script but its own, and make no HTML of text."""

from __future__ import annotations

from functools import partial
from importlib.resources import files

from keepworth.page import PARTS, STYLE, asset
from keepworth.serving.calls import ReadyAnswer, RouteAnswers, ServedCall

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


def page_table() -> dict[tuple[str, str], RouteAnswers]:
    """(method, path) -> what answers it."""
    own = [each.name for each in (files("keepworth.serving") / "page").iterdir()]
    texts = {name: asset(name, "keepworth.serving", "page") for name in own}
    texts |= {name: asset(name) for name in (STYLE, PARTS)}
    return {
        ("GET", "/" if name == INDEX else f"/page/{name}"): partial(_file, _answer(name, text))
        for name, text in texts.items()
    }


def _answer(name: str, text: str) -> ReadyAnswer:
    kind = KINDS[name.rpartition(".")[2]]
    return ReadyAnswer(text.encode(), f"{kind}; charset=utf-8", headers=HEADERS)


def _file(answer: ReadyAnswer, call: ServedCall) -> ReadyAnswer:
    return answer

"""A stand-in for vLLM: its routes over an in-process model, for tests.

It answers vLLM's documented routes, so that what talks to an engine can be run and tested on a laptop against the
very weights that the in-process model has. It is no engine: it computes one request at a time and has no business on a network.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from functools import partial

from keepworth.models.inprocess import InProcessModel
from keepworth.serving.application import ServerLimits, application
from keepworth.serving.calls import NotServed
from keepworth.serving.http_server import HttpServer
from tests.stand_in.model import ServedModel
from tests.stand_in.routes import FEATURES, ServerStyle, routes


def check(key: str | None, path: str, authorization: str) -> None:
    """Raises NotServed where callers must send `key` as a bearer token and did not."""
    if key is None or hmac.compare_digest(authorization.encode("latin-1"), f"Bearer {key}".encode()):
        return
    raise NotServed("The key is missing or wrong.", "Send it as: Authorization: Bearer KEY.", status=401)


class ModelServer(HttpServer):
    """Serves `model` from `start` to `close`, or inside a `with` block; other threads of this process go on meanwhile.

    The model is taken over: see `ServedModel`. port 0: any free one; `url` says which. style: whose routes it answers; control:
    whether it also loads adapters, replaces weights, pauses and aborts; without: of FEATURES[style], what to leave out.
    api_key: what callers must send as a bearer token; limits: of
    bodies.
    """

    def __init__(
        self,
        model: InProcessModel,
        *,
        port: int = 0,
        style: ServerStyle = "keepworth",
        control: bool = True,
        max_adapters: int = 8,
        api_key: str | None = None,
        without: Iterable[str] = (),
        limits: ServerLimits | None = None,
    ) -> None:
        left_out = frozenset(without)
        routes(style, left_out)  # raises for names that do not exist
        offered = routes(style, FEATURES[style] - left_out if control else frozenset())
        self.model = model if isinstance(model, ServedModel) else ServedModel(model, max_adapters, style == "vllm")
        table = {route: partial(answers, self.model) for route, answers in offered.items()}
        super().__init__(
            lambda workers: application(
                table, partial(check, api_key), workers, limits or ServerLimits(), left=self.model.leave
            ),
            port=port,
            name="model-server",
        )

    def let_go(self) -> None:
        self.model.close()

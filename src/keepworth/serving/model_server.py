"""A model of this process behind OpenAI's chat completions, without a memory, for programs of this machine."""

from __future__ import annotations

import hmac

from keepworth.episodes.needs import needs_serve

from keepworth.models.inprocess import InProcessModel
from keepworth.serving.application import ServerLimits, application
from keepworth.serving.calls import NotServed, RouteAnswers, WaitingCaller
from keepworth.serving.http_server import HttpServer
from keepworth.serving.model_upstream import CHAT, ModelUpstream


class ModelServer(HttpServer):
    """Serves `model` from `start` to `close`, or inside a `with` block.

    Args:
        model: Taken over, see `LocalModel`.
        port: 0 for any that is free; `url` says which.
        key: What callers must send as a bearer token; "" for nothing.
    """

    def __init__(self, model: InProcessModel, *, port: int = 0, key: str = "") -> None:
        upstream = ModelUpstream(model)
        self.model = upstream.model

        def check(path: str, authorization: str) -> None:
            if key and not hmac.compare_digest(authorization.encode("latin-1"), f"Bearer {key}".encode()):
                raise NotServed("The key is missing or wrong.", "Send Authorization: Bearer KEY.", status=401)

        def answer(method: str, path: str) -> RouteAnswers:
            return lambda call: upstream.answer(method, path, call.raw, call.caller)[0]

        def leave(caller: WaitingCaller) -> None:
            caller.left = True

        table = {route: answer(*route) for route in (("POST", CHAT), ("GET", "/v1/models"))}
        super().__init__(
            lambda workers: application(table, check, workers, ServerLimits(), left=leave),
            port=port,
            name="model-server",
            patience=10,
        )

    def let_go(self) -> None:
        self.model.close()

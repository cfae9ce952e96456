"""`keepworth serve`: a model behind OpenAI's routes, on this machine, with token ids and log-probabilities."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer

from keepworth.cli.output import Runs, interruptible, say

if TYPE_CHECKING:
    from keepworth.models.inprocess import InProcessModel

KEY = "KEEPWORTH_API_KEY"
DEFAULT = "smollm2-135m-instruct"


def serve(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help=f"A model's name, a checkpoint's folder, or a Hugging Face id; {DEFAULT} if not given.",
        ),
    ] = "",
    run: Annotated[str, typer.Option("--run", help="Serve what this run trained, on the model it trained.")] = "",
    role: Annotated[str, typer.Option("--role", help="Which of the run's roles, where it trained several.")] = "",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0 takes any that is free.")] = 8000,
    style: Annotated[
        str, typer.Option("--style", help="Whose routes it answers: keepworth, vllm or sglang.")
    ] = "keepworth",
    control: Annotated[
        bool, typer.Option("--control", help="Let callers load adapters, replace weights, pause and abort, too.")
    ] = False,
    precision: Annotated[str, typer.Option("--precision", help="bf16 or fp32.")] = "bf16",
    runs: Runs = Path("runs"),
) -> None:
    """Serve a model to programs on this machine: /v1/chat/completions, /v1/completions, token ids, log-probabilities.

    Callers must send what KEEPWORTH_API_KEY holds as a bearer token, if it is set. Ctrl-C stops."""
    from keepworth.episodes.errors import KeepworthError, UnknownName
    from keepworth.episodes.extras import require

    require("serve", "keepworth serve")
    from keepworth.serving.model_server import ModelServer
    from keepworth.serving.routes import ServerStyle

    if style not in ("keepworth", "vllm", "sglang"):
        raise UnknownName("server style", style, ("keepworth", "vllm", "sglang"))
    if precision not in ("bf16", "fp32"):
        raise UnknownName("precision", precision, ("bf16", "fp32"))
    if role and not run:
        raise KeepworthError("--role names a role of a run.", "Name the run with --run, or leave --role out.")
    if run and model:
        raise KeepworthError("--run says which model is served.", f"Leave {model} out.")
    require_free(port)
    weights = _weights(run, role, runs) if run else None
    model = weights[0] if weights is not None else model or DEFAULT
    say(f"Loading {model} ...")
    loaded = _loaded(model, precision)
    served = "" if weights is None else weights[1].name
    adapter = weights is not None and (weights[1] / "adapter_config.json").exists()
    if weights is not None and not adapter:
        from keepworth.recipes.training import with_weights

        with_weights(loaded, weights[1])
    server = ModelServer(
        loaded, port=port, style=cast("ServerStyle", style), control=control, api_key=os.environ.get(KEY) or None
    )
    if weights is not None and adapter:
        server.model.load_adapter(served, str(weights[1]))
    name = served if adapter else server.model.name
    with interruptible():
        try:
            with server:
                _say(server.url, name, control)
                server.wait()
        except KeyboardInterrupt:
            say("\nStopped.")
            raise typer.Exit(130) from None


def require_free(port: int) -> None:
    """Raises KeepworthError where another program listens on the port: said before a model is loaded for nothing."""
    from keepworth.episodes.errors import KeepworthError

    with socket.socket() as attempt:
        attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server itself does
        try:
            attempt.bind(("127.0.0.1", port))
        except OSError as error:
            raise KeepworthError(
                f"Port {port} of 127.0.0.1 cannot be listened on ({error.strerror}).",
                "Another program may be using it: choose another with --port, or --port 0 for any that is free.",
            ) from error


def _weights(name: str, role: str, runs: Path) -> tuple[str, Path]:
    """(the model that a run trained, the folder of its finished weights). Raises KeepworthError where there are none."""
    from keepworth.episodes.errors import KeepworthError, UnknownName
    from keepworth.learning.run_folder import find_run

    run = find_run(name, runs)
    trained = sorted(each.name for each in (run.path / "weights").glob("*") if each.is_dir())
    if not trained:
        raise KeepworthError(
            f"{run.path} has not finished training a role.", "Continue the run with the command that began it."
        )
    if not role and len(trained) > 1:
        raise KeepworthError(f"{run.path} trained {' and '.join(trained)}.", f"Say which: --role {trained[0]}.")
    if role and role not in trained:
        raise UnknownName("trained role", role, trained, where=str(run.path))
    chosen = role or trained[0]
    return str(run.config.get("model", DEFAULT)), run.path / "weights" / chosen


def _loaded(model: str, precision: str) -> InProcessModel:
    from keepworth.models.files import ModelKind, path_of
    from keepworth.models.inprocess import InProcessModel
    from keepworth.models.threads import settle_threads

    path = path_of(model, kind=ModelKind.LANGUAGE)
    loaded = InProcessModel.load(path, name=model, precision=cast(Literal["bf16", "fp32"], precision))
    settle_threads(loaded)
    return loaded


def _say(url: str, name: str, control: bool) -> None:
    import shlex

    from rich.text import Text

    from keepworth.episodes.text import terminal

    console = terminal(soft_wrap=True)
    console.print(Text.assemble((url, "bold"), "  serves ", (name, "bold"), " to this machine. Ctrl-C stops."))
    if not os.environ.get(KEY):
        console.print(f"Any program of this machine may call it; {KEY} sets a key.", style="dim")
    if control:
        console.print("Callers may change its weights (--control).", style="yellow")
    body = json.dumps({"model": name, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 16})
    console.print(
        f"\ncurl {url}/v1/chat/completions -H 'Content-Type: application/json' \\\n  -d {shlex.quote(body)}\n"
    )

"""The events of opencode, which runs no commands at its events but plugins: `opencode.js` beside this file is one that runs
`keepworth hook` with what opencode hands it. Their form is that of the types of `@opencode-ai/plugin` and of its SDK, 1.18."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from keepworth.base.json_values import as_object, objects_in
from keepworth.base.text import unquoted

EVENTS = ("session.created", "chat.message", "tool.execute.after", "message.part.updated", "session.error")
"""What has fields of its own; of the other events the name is enough."""
_STOPPED = ("The user rejected permission", "Tool execution aborted", "The user dismissed this question")
"""How the error of a tool begins that the user did not let run, or stopped."""
_ABORTED = "User aborted the command"
"""What opencode writes behind the output of a shell that the user stopped."""
_COMMAND = '["keepworth", "hook"]'
"""The command of the plugin, in whose place stands that of `keepworth hook --install`."""


def plugin(command: str) -> str:
    """Return the plugin's file.

    Args:
        command: The program and its arguments, as a list in JSON.
    """
    from importlib.resources import files  # an event needs none of it

    return files("keepworth.serving").joinpath("opencode.js").read_text("utf-8").replace(_COMMAND, command, 1)


def flatten(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an event as the other hosts name them.

    Args:
        name: The name of the hook, or the type of the event.
        given: `input` and `output` of the hook, or `properties` of the event, beside the session and the folder.
    """
    place = {key: given[key] for key in ("session_id", "cwd") if key in given}
    output, call = as_object(given.get("output")), as_object(given.get("input"))
    properties = as_object(given.get("properties"))
    if name == "chat.message":
        parts = [
            part for part in objects_in(output.get("parts")) if not part.get("synthetic") and not part.get("ignored")
        ]
        return {**place, "prompt": unquoted(_text_of(parts))}
    if name == "tool.execute.after":
        text = output.get("output")
        printed = text if isinstance(text, str) else _text_of(objects_in(output.get("content")))
        ended = as_object(output.get("metadata"))
        # A shell that was stopped, by the user or at its time limit, has no exit code.
        failed = output.get("isError") or ("exit" in ended and ended["exit"] is None)
        response = {"output": printed, "exit_code": ended.get("exit"), "error": printed if failed else ""}
        stopped = "exit" in ended and ended["exit"] is None and _ABORTED in printed
        return {**place, **_tool(call.get("tool"), call.get("args"), response, stopped)}
    if name == "message.part.updated":
        part = as_object(properties.get("part"))
        state = as_object(part.get("state"))
        error = str(state.get("error") or "it failed") if state.get("status") == "error" else ""
        return {**place, **_tool(part.get("tool"), state.get("input"), {"error": error}, error.startswith(_STOPPED))}
    if name == "session.error":
        return {**place, **_tool("stopped by the user", {}, {}, True)}
    return place


def _tool(name: Any, arguments: Any, response: dict[str, Any], stopped: bool) -> dict[str, Any]:
    return {"tool_name": name, "tool_input": arguments, "tool_response": response, "is_interrupt": stopped}


def _text_of(parts: Iterable[Mapping[str, Any]]) -> str:
    return "\n".join(part["text"] for part in parts if part.get("type") == "text" and isinstance(part.get("text"), str))

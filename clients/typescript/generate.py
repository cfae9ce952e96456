"""Write the TypeScript client anew, from the server's own OpenAPI document.

    python clients/typescript/generate.py

It needs no running server. A test compares what it writes with what is there.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

from keepworth.serving.access import Tokens
from keepworth.serving.memory_routes import ROUTES, audit_routes, described, token_routes
from keepworth.serving.overview_routes import OVERVIEW_ROUTES, server_routes

HERE = Path(__file__).parent
KINDS = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}
BEGINNING = """\
// Written by clients/typescript/generate.py from the OpenAPI document of keepworth {version}: change that, not this.
// Needs `fetch` and `crypto`: Node 20, Deno, Bun, a browser extension. No other package.

/** What the server answers: the fields are those of the Python client's records. */
// eslint-disable-next-line @typescript-eslint/no-explicit-any
export type Answer = Record<string, any>;

"""
CLASS = """\
/** What the server refuses, or that it gave no answer: then `status` is 0. */
export class KeepworthError extends Error {
  status: number;
  code: string;
  field: string;
  fix: string;
  constructor(problem: Partial<Problem>) {
    super([problem.detail, problem.fix].filter(Boolean).join(" "));
    this.name = "KeepworthError";
    this.status = problem.status ?? 0;
    this.code = problem.code ?? "";
    this.field = problem.field ?? "";
    this.fix = problem.fix ?? "";
  }
}

export interface Options {
  /** Times that a request is sent again where no answer came, or 429, 502, 503 or 504. Writes carry a key and are done once. */
  retries?: number;
  /** Milliseconds for one answer. */
  timeout?: number;
  fetch?: typeof fetch;
}

/** The verbs of a memory that `keepworth serve --memory` serves. url: as it printed it; token: as it printed it. */
export class Keepworth {
  private base: string;
  private token: string;
  private options: Required<Options>;

  constructor(url: string, token: string, options: Options = {}) {
    this.base = url.replace(/\\/+$/, "").replace(/\\/v1(\\/memory)?$/, "");
    this.token = token;
    this.options = { retries: 3, timeout: 30000, fetch: globalThis.fetch, ...options };
  }

"""
END = """\
  private async send(method: string, path: string, query: object, body: object | null, writes: boolean): Promise<Answer> {
    const url = new URL(this.base + path);
    for (const [name, value] of Object.entries(query)) if (value !== undefined) url.searchParams.set(name, String(value));
    const headers: Record<string, string> = { Authorization: `Bearer ${this.token}` };
    if (body !== null) headers["Content-Type"] = "application/json";
    if (writes) headers["Idempotency-Key"] = crypto.randomUUID();
    for (let attempt = 0, pause = 200; ; attempt += 1, pause *= 2) {
      const last = attempt >= this.options.retries || !(writes || method === "GET");
      try {
        const signal = AbortSignal.timeout(this.options.timeout);
        const sent = body === null ? undefined : JSON.stringify(body);
        const response = await this.options.fetch(url, { method, headers, body: sent, signal });
        if (response.ok) {
          const lines = (response.headers.get("content-type") ?? "").includes("ndjson");
          return lines ? { text: await response.text() } : ((await response.json()) as Answer);
        }
        const again = [429, 502, 503, 504].includes(response.status);
        const said = await response.text();
        if (last || !again) throw new KeepworthError(problemOf(said, response.status));
      } catch (error) {
        if (error instanceof KeepworthError) throw error;
        const detail = `${this.base} gave no answer (${String(error)}).`;
        if (last) throw new KeepworthError({ detail, fix: "Is the server running there?" });
      }
      await new Promise((resolve) => setTimeout(resolve, pause));
    }
  }
}

function problemOf(said: string, status: number): Partial<Problem> {
  try {
    return { ...(JSON.parse(said) as Partial<Problem>), status };
  } catch {
    return { status, detail: `The answer has status ${status}, and is not of a memory.` };
  }
}
"""


def written() -> str:
    """The client."""
    beside = (*token_routes(Tokens(None)), *audit_routes(Path("audit")), *OVERVIEW_ROUTES, *server_routes({}))
    document = described((*ROUTES, *beside))
    schemas = document["components"]["schemas"]
    parts = [BEGINNING.format(version=document["info"]["version"])]
    parts += [interface(name, schema) for name, schema in sorted(schemas.items())]
    parts += [CLASS]
    parts += [
        verb(path, method, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    return "".join([*parts, END])


def interface(name: str, schema: dict[str, Any]) -> str:
    required = schema.get("required", ())
    fields = [
        f"{comment(each.get('description', ''))}  {field}{'' if field in required else '?'}: {kind(each)};\n"
        for field, each in schema.get("properties", {}).items()
    ]
    return f"{comment(schema.get('description', ''), '')}export interface {name} {{\n{''.join(fields)}}}\n\n"


def comment(text: str, indent: str = "  ") -> str:
    return f"{indent}/** {' '.join(text.split())} */\n" if text else ""


def kind(schema: dict[str, Any]) -> str:
    """As TypeScript says it."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(map(kind, schema["anyOf"])))
    if schema.get("type") == "array":
        inside = kind(schema.get("items", {}))
        return f"({inside})[]" if "|" in inside else f"{inside}[]"
    return KINDS.get(str(schema.get("type")), "Record<string, unknown>")


def verb(path: str, method: str, operation: dict[str, Any]) -> str:
    """One method of the class."""
    parameters = operation["parameters"]
    named = [each["name"] for each in parameters if each["in"] == "path"]
    query = [each for each in parameters if each["in"] == "query"]
    writes = any(each["in"] == "header" for each in parameters)
    asked = [f"{name}: string" for name in named]
    body = "null"
    if "requestBody" in operation:
        model = kind(operation["requestBody"]["content"]["application/json"]["schema"])
        asked.append(f"body: {model}" + ("" if operation["requestBody"]["required"] else " = {}"))
        body = "body"
    if query:
        fields = "; ".join(f"{each['name']}{'' if each['required'] else '?'}: {kind(each['schema'])}" for each in query)
        asked.append(f"query: {{ {fields} }}" + ("" if any(each["required"] for each in query) else " = {}"))
    place = re.sub(r"{(\w+)}", r"${encodeURIComponent(\1)}", path)
    name = re.sub(r"_(\w)", lambda found: found[1].upper(), operation["operationId"])
    said = f"{operation['summary']} {operation['description']}"
    call = f'"{method.upper()}", `{place}`, {"query" if query else "{}"}, {body}, {str(writes).lower()}'
    return f"  /** {said} */\n  {name}({', '.join(asked)}): Promise<Answer> {{\n    return this.send({call});\n  }}\n\n"


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    (HERE / "keepworth.ts").write_text(written(), encoding="utf-8")


if __name__ == "__main__":
    main()

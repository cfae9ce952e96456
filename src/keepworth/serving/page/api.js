// The routes of the server that this page came from, called with the token of whoever signed in.

const KEY = "keepworth token";

export class Refused extends Error {
  constructor(status, message, fix = "") {
    super(message);
    this.status = status;
    this.fix = fix;
  }
}

// What percents in an address stand for; as it is where they stand for nothing.
export function decoded(text) {
  try { return decodeURIComponent(text); } catch { return text; }
}

// The token that the address offers behind `#token=`, which no request carries; "" for none. It is taken out of the address at once.
// Anybody can make such an address, also with a token of their own: whoever opened it is asked before it is used.
export function offeredToken() {
  const found = /^#token=(.+)$/.exec(location.hash);
  if (!found) return "";
  history.replaceState(null, "", location.pathname + location.search);
  return decoded(found[1]);
}

// It is kept for this tab alone.
export const token = () => sessionStorage.getItem(KEY) ?? "";
export const keepToken = value => sessionStorage.setItem(KEY, value);
export const forgetToken = () => sessionStorage.removeItem(KEY);

// path: behind v1/memory. Of options: body (sent as JSON), query, text (the answer is no JSON), signal, and a key for a write.
export async function call(method, path, { body, query, text = false, signal, base = "v1/memory" } = {}) {
  const listed = Object.entries(query ?? {}).filter(([, value]) => value !== "" && value !== undefined && value !== false);
  const address = `${base}${path}${listed.length ? `?${new URLSearchParams(listed)}` : ""}`;
  const headers = { Authorization: `Bearer ${token()}` };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (method !== "GET") headers["Idempotency-Key"] = randomKey();
  let answer;
  try {
    answer = await fetch(address, { method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body) });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, "The server gives no answer.", "Start it again: keepworth serve --memory agent.mem. Then load this page again.");
  }
  if (answer.ok) return text ? answer.text() : answer.json();
  const said = await answer.json().catch(() => ({}));
  throw new Refused(answer.status, said.detail ?? `The server answered with ${answer.status}.`, said.fix ?? "");
}

// `crypto.randomUUID` is not there over plain HTTP from another machine.
const randomKey = () => [...crypto.getRandomValues(new Uint8Array(16))].map(each => each.toString(16).padStart(2, "0")).join("");

export const get = (path, query, options = {}) => call("GET", path, { query, ...options });
export const post = (path, body, options = {}) => call("POST", path, { body, ...options });

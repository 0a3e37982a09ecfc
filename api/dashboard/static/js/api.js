// The REST API, and what its errors say.

/** An answer that is no success; `errors` are the places of a request that do not fit. */
export class ApiError extends Error {
  constructor(message, status = 0, errors = []) {
    super(message);
    this.status = status;
    this.errors = errors;
  }
}

/** The address of a resource; parameters that are empty are left out, lists are repeated. */
export function address(path, parameters = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== null && one !== undefined && one !== "") query.append(name, one);
    }
  }
  const text = query.toString();
  return `/api/v1${path}${text ? `?${text}` : ""}`;
}

/** Read a resource: JSON as its value, anything else as text. */
export function get(path, parameters = {}, signal = undefined) {
  return answer(address(path, parameters), { signal });
}

/** Send a body; a key makes it safe to send the same again. */
export function send(method, path, body, key = null) {
  const headers = { "Content-Type": "application/json" };
  if (key !== null) headers["Idempotency-Key"] = key;
  return answer(address(path), { method, headers, body: JSON.stringify(body) });
}

/** Read all pages of a list, `most` items at most; `listOf` finds it in an answer that has more. */
export async function getAll(path, parameters = {}, most = 10_000, listOf = (answer) => answer) {
  const items = [];
  let cursor = null;
  do {
    const page = listOf(await get(path, { ...parameters, limit: 500, cursor }));
    items.push(...page.items);
    cursor = page.next_cursor;
  } while (cursor !== null && items.length < most);
  return items;
}

/** Run a reading; what the service refuses is told to `failed`. */
export async function tried(read, failed) {
  try {
    await read();
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    failed(error);
  }
}

/** A key for one attempt to send something. */
export function newKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

async function answer(url, options) {
  let response;
  try {
    response = await fetch(url, { credentials: "same-origin", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("The service does not answer. Is it still running?");
  }
  if (response.status === 401) {
    location.assign(`/login?next=${encodeURIComponent(location.pathname + location.search)}`);
  }
  const isJson = (response.headers.get("Content-Type") ?? "").includes("json");
  const body = response.status === 204 ? null : await bodyOf(response, isJson);
  if (!response.ok) {
    const said = body?.detail ?? `The service answered ${response.status}.`;
    throw new ApiError(said, response.status, body?.errors ?? []);
  }
  return body;
}

async function bodyOf(response, isJson) {
  try {
    return await (isJson ? response.json() : response.text());
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("The service's answer was cut off.", response.status);
  }
}

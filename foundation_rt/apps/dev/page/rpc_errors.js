/** The errors of requests to a server, and the check of its HTTP responses. */

import { parseJson } from "/shared/exact_numbers.js";

/** An error that a server answered a request with. */
export class RpcError extends Error {
  constructor({ code, message, data }) {
    super(message);
    Object.assign(this, { code, data });
  }
}

/** The way to the server failed; nobody knows whether the request was carried out. */
export class LostError extends Error {}

/** The server does not know the session, or not the token. */
export class SessionError extends LostError {}

/** The request was cancelled here. */
export class CancelledError extends Error {}

/** Return a response; throws what it says if it is none of success, with its `status`. */
export async function checked(response) {
  if (response.ok) return response;
  const text = (await response.text().catch(() => "")).slice(0, 2000);
  const body = parsed(text);
  const said = body?.error?.message ?? (typeof body?.error === "string" ? body.error : text);
  const isSession = response.status === 404 || response.status === 401;
  const error = isSession
    ? new SessionError(said || `HTTP ${response.status}`)
    : typeof body?.error?.code === "number"
      ? new RpcError(body.error)
      : new LostError(`HTTP ${response.status}${said ? `: ${said}` : ""}`);
  throw Object.assign(error, { status: response.status });
}

function parsed(text) {
  try {
    return parseJson(text);
  } catch {
    return null;
  }
}

/** Return an error of this module for whatever a request has thrown. */
export function asError(error) {
  const isOwn = [RpcError, LostError, CancelledError].some((each) => error instanceof each);
  return isOwn ? error : new LostError(`The way to the server failed: ${error.message}`);
}

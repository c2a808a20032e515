/**
 * The secret of this page: in the fragment of the printed address, then in the storage of this tab alone (HTTP-43).
 *
 * A cookie would go to every port of the host. So each request has the secret in a header, a WebSocket among its
 * subprotocols.
 */

const KEY = `foundation-rt.token ${location.pathname}`;
const FRAGMENT = "#token=";
const SUBPROTOCOL = "foundation-rt.bearer";

let token = stored();

/** Move the secret from the address bar into the tab; returns whether there was one. */
function take() {
  if (!location.hash.startsWith(FRAGMENT)) return false;
  token = decoded(location.hash.slice(FRAGMENT.length));
  history.replaceState(null, "", location.pathname + location.search);
  try {
    sessionStorage.setItem(KEY, token);
  } catch {
    // Storage is forbidden: the page works until it is loaded again.
  }
  return true;
}

/** Return the key that a fragment has; the fragment as it is, where that is none. */
function decoded(text) {
  try {
    const key = decodeURIComponent(text);
    return /^[\x21-\x7e]+$/.test(key) ? key : text;
  } catch {
    return text;
  }
}

function stored() {
  try {
    return sessionStorage.getItem(KEY);
  } catch {
    return null;
  }
}

/** Request a path of this server; returns null if nothing answers. */
export async function request(path, { headers, ...options } = {}) {
  const own = token === null ? {} : { "X-API-Key": token };
  try {
    return await fetch(new URL(path, document.baseURI), { ...options, headers: { ...headers, ...own } });
  } catch {
    return null;
  }
}

/** Return the subprotocols with which a WebSocket to this server is opened. */
export function subprotocols() {
  if (token === null) return [];
  const encoded = btoa(token).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
  return [SUBPROTOCOL, `${SUBPROTOCOL}.${encoded}`];
}

/** Return where this page is opened, for somebody whose tab does not have the secret. */
export function printedAddress() {
  return `${location.origin}${location.pathname}${FRAGMENT}…`;
}

take();
// The address is opened in this tab: only its fragment is another one, which loads nothing.
addEventListener("hashchange", () => take() && location.reload());

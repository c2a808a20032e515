"""Orders: an app, a table that a person sorts and refunds from (spec/guide/apps.md).

::

    foundation-rt dev foundation_rt.examples.orders:server

A host without apps has the orders as text. A model cannot refund anything.
"""

from __future__ import annotations

from attrs import evolve, frozen

from foundation_rt import ErrorCode, Server, ToolError, ToolUi

PAGE = """<!doctype html><html lang="en"><meta charset="utf-8">
<title>Orders</title>
<style>
  :root { color-scheme: light dark; font: 14px system-ui, sans-serif }
  body { margin: 0; overflow: hidden } table { border-collapse: collapse; width: 100% }
  th, td { padding: 6px; text-align: left; border-bottom: 1px solid #8886 }
  th button { border: 0; padding: 0; background: none; color: inherit; font: bold 14px system-ui }
</style>
<table><thead><tr></tr></thead><tbody></tbody></table>
<p role="status">Loading</p>
<script>
  const status = document.querySelector("p"), waiting = [];
  let orders = [], key = "id", sign = 1, prefix = "";

  const send = (message) => parent.postMessage({ jsonrpc: "2.0", ...message }, "*");
  const ask = (method, params) => new Promise((resolve, reject) => {
    send({ id: waiting.push({ resolve, reject }), method, params });
  });
  const button = (textContent, onclick) =>
    Object.assign(document.createElement("button"), { type: "button", textContent, onclick });

  const heads = { id: "Order", customer: "Customer", cents: "Total", refunded: "State" };
  for (const [name, text] of Object.entries(heads)) {
    const head = document.createElement("th");
    head.append(button(text, () => { sign = key === name ? -sign : 1; key = name; draw(); }));
    document.querySelector("thead tr").append(head);
  }
  function draw() {
    const body = document.createElement("tbody");
    for (const each of orders.toSorted((a, b) => sign * ((a[key] > b[key]) - (a[key] < b[key])))) {
      const call = { name: `${prefix}refund_order`, arguments: { order_id: each.id } };
      const refund = button("Refund", () => ask("tools/call", call).then(show, fail));
      const row = body.insertRow(), total = (each.cents / 100).toFixed(2);
      for (const value of [each.id, each.customer, total, each.refunded ? "refunded" : refund])
        row.insertCell().append(value);
    }
    document.querySelector("tbody").replaceWith(body);
  }
  function show({ structuredContent, isError, content }) {
    status.textContent = isError ? content[0].text : "";
    orders = structuredContent?.orders ?? orders;
    draw();
  }
  const fail = ({ message }) => { status.textContent = message; };
  const adapt = (context) => { document.documentElement.style.colorScheme = context?.theme ?? ""; };

  addEventListener("message", ({ source, data }) => {
    if (source !== parent || data?.jsonrpc !== "2.0") return;
    const { id, method, params, result, error } = data;
    if (method === "ui/notifications/tool-result") show(params);
    else if (method === "ui/notifications/host-context-changed") adapt(params);
    else if (method) id !== undefined && send({ id, result: {} });
    else if (error) waiting[id - 1]?.reject(error);
    else waiting[id - 1]?.resolve(result);
  });
  const appInfo = { name: "orders", version: "1.0.0" }, protocolVersion = "2026-01-26";
  ask("ui/initialize", { protocolVersion, appInfo, appCapabilities: {} }).then((host) => {
    adapt(host.hostContext);
    prefix = /^(.*)list_orders$/.exec(host.hostContext?.toolInfo?.tool.name)?.[1] ?? "";
    send({ method: "ui/notifications/initialized", params: {} });
    new ResizeObserver(() => send({ method: "ui/notifications/size-changed",
      params: { width: innerWidth, height: document.documentElement.offsetHeight } }),
    ).observe(document.documentElement);
  });
</script>
"""

server = Server("orders", version="1.0.0")
server.app("ui://orders/table", PAGE, title="Orders", prefers_border=True)


@frozen
class PlacedOrder:
    """An order; its total is in cents."""

    id: int
    customer: str
    cents: int
    refunded: bool = False


@frozen
class Orders:
    """The orders of the shop."""

    orders: list[PlacedOrder]


rows = [("Ada", 990), ("Cy", 4200), ("Ben", 70)]
book = {n: PlacedOrder(n, *row) for n, row in enumerate(rows, 1)}


@server.tool(ui="ui://orders/table")
def list_orders() -> Orders:
    """Show the orders."""
    return Orders([*book.values()])


@server.tool(ui=ToolUi(visibility=("app",)))
def refund_order(order_id: int) -> Orders:
    """Refund an order: a person does, in the table."""
    if order_id not in book:
        raise ToolError(ErrorCode.NOT_FOUND, f"There is no order {order_id}.")
    book[order_id] = evolve(book[order_id], refunded=True)
    return Orders([*book.values()])

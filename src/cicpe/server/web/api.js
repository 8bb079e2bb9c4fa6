// Requests to the server. Every refusal is a Refusal, an unreachable server is Offline.

export class Refusal extends Error {
  constructor(code, fault) {
    super(fault.message ?? `the server answered ${code}`);
    Object.assign(this, { code, fault });
  }
}

export class Offline extends Error {}

export const token = {
  get: () => sessionStorage.getItem("token"),
  set: (value) => sessionStorage.setItem("token", value),
  drop: () => sessionStorage.removeItem("token"),
};

async function request(...words) {
  return (await answered(...words)).json();
}

/** The answer to a request that was not refused. */
async function answered(method, path, body, key) {
  const headers = { Accept: "application/json" };
  if (token.get()) headers.Authorization = `Bearer ${token.get()}`;
  if (key) headers["Idempotency-Key"] = key;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  try {
    const answer = await fetch(`api/${path}`, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
    if (answer.ok) return answer;
    const fault = await answer.json();
    throw answer.status >= 500 ? new Offline(fault.message ?? "The server is in trouble.") : new Refusal(answer.status, fault);
  } catch (error) {
    throw error instanceof Refusal || error instanceof Offline ? error : new Offline("The server does not answer.");
  }
}

// A name is said to be one: the first letters of another campaign's id may look the same.
const reference = (name) => (/^(name:|id:|[0-9a-f]{32}$)/i.test(name) ? name : `name:${name}`);
const campaign = (name, rest = "") => `campaigns/${encodeURIComponent(reference(name))}${rest}`;

export const api = {
  models: () => request("GET", "models"),
  model: (name) => request("GET", `models/${encodeURIComponent(name)}`),
  campaigns: () => request("GET", "campaigns"),
  begin: (wish) => request("POST", "campaigns", wish),
  view: (name) => request("GET", campaign(name)),
  ask: (name) => request("GET", campaign(name, "/ask")),
  plot: (name) => request("GET", campaign(name, "/plot")),
  log: (name) => request("GET", campaign(name, "/log")),
  exported: (name) => request("GET", campaign(name, "/export")),
  change: (name, kind, body, key) => request("POST", campaign(name, `/${kind}`), body, key),
  table: async (name) => (await answered("GET", campaign(name, "/table"))).text(),
  templates: () => request("GET", "templates"),
  check: (draft) => request("POST", "experiments/check", draft),
  estimate: (document) => request("POST", "experiments/estimate", { document }),
  training: () => request("GET", "training"),
  train: (wish) => request("POST", "training", wish),
  cancel: (id) => request("POST", "training/cancel", { id }),
  restart: (name, fresh) => request("POST", campaign(name, "/restart"), { name: fresh }),
  fork: (name, copy) => request("POST", campaign(name, "/fork"), { name: copy }),
};

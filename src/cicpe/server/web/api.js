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

async function request(method, path, body, key) {
  const headers = { Accept: "application/json" };
  if (token.get()) headers.Authorization = `Bearer ${token.get()}`;
  if (key) headers["Idempotency-Key"] = key;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let answer, content;
  try {
    answer = await fetch(`api/${path}`, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
    content = await answer.json();
  } catch {
    throw new Offline("The server does not answer.");
  }
  if (answer.status >= 500) throw new Offline(content.message ?? "The server is in trouble.");
  if (!answer.ok) throw new Refusal(answer.status, content);
  return content;
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
  fork: (name, copy) => request("POST", campaign(name, "/fork"), { name: copy }),
};

// Requests to the service.

const TOKEN_KEY = "stream_dr token";

// The bearer token, stored for this tab only.
export const token = {
  get: () => sessionStorage.getItem(TOKEN_KEY) || "",
  set: value => sessionStorage.setItem(TOKEN_KEY, value),
};

// Error of a response that is not OK. The message is the service's sentence.
export class Refused extends Error {
  constructor(status, message) { super(message); this.status = status; }
}

export async function ask(path, options = {}) {
  const headers = { ...options.headers };
  if (token.get()) headers.Authorization = `Bearer ${token.get()}`;

  const response = await fetch(path, { ...options, headers, signal: AbortSignal.timeout(15000) });
  if (response.ok) return response;
  const problem = await response.json().catch(() => ({}));
  throw new Refused(response.status, problem.detail || `the service answered ${response.status}`);
}

// Send a body as JSON, or none.
export const write = (method, path, body) => ask(path, body === undefined ? { method } : {
  method, headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
});

// What is asked of the service: with the tab's token, and errors as sentences.

const KEPT = "stream_dr token";

export const token = {
  get: () => sessionStorage.getItem(KEPT) || "",
  set: value => sessionStorage.setItem(KEPT, value),
};

export class Refused extends Error {
  constructor(status, message) { super(message); this.status = status; }
}

export async function ask(path, options = {}) {
  const headers = { ...options.headers };
  if (token.get()) headers.Authorization = `Bearer ${token.get()}`;
  const answer = await fetch(path, { ...options, headers, signal: AbortSignal.timeout(15000) });
  if (answer.ok) return answer;
  const told = await answer.json().catch(() => ({}));
  throw new Refused(answer.status, told.detail || `the service answered ${answer.status}`);
}

export const write = (method, path, body) => ask(path, body === undefined ? { method } : {
  method, headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
});

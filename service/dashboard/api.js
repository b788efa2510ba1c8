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

const KINDS = { f4: Float32Array, f8: Float64Array, i4: Int32Array };

// The header of a body of /figures, with the arrays where they belong (stream_dr.LiveFigures has the form).
export function unpacked(buffer) {
  const length = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  const place = (value, at) => {
    if (Array.isArray(value)) return value.map(part => place(part, at));
    if (value === null || typeof value !== "object") return value;
    if (value.$) return new KINDS[value.$[0]](buffer, 4 + length + at + value.$[1], value.$[2]);
    return Object.fromEntries(Object.entries(value).map(([name, part]) => [name, place(part, at)]));
  };
  for (const drawn of Object.values(header.figures)) if (drawn.figure) drawn.figure = place(drawn.figure, drawn.at);
  return { ...header, ...header.told };
}

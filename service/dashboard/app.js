// The dashboard. It polls the service every two seconds and shows what changed.

import { ask, token } from "./api.js";
import * as figures from "./figures.js";
import { cancel, element, install } from "./forms.js";

// Milliseconds between two polls, and before another attempt after an error.
const POLL_INTERVAL = 2000;
const RETRY_DELAY = 1000;

const at = id => document.getElementById(id);
const show = number => Number(number).toLocaleString("en");
const share = part => part === undefined || part === null ? "–" : `${(100 * part).toFixed(1)} %`;

// The last poll's {rows, when, rate}, the name of the model shown, true if the reader picked it,
// and the function that ends the current wait.
let previous = null;
let shownModel = "";
let picked = false;
let wake = () => {};

const chosen = () => shownModel;

// Return the path that asks for the figures the page does not have yet.
function query() {
  const parameters = new URLSearchParams({ rows: at("count").value, dimensions: at("dimensions").value,
    component: Math.max(0, (parseInt(at("component").value, 10) || 1) - 1), have: figures.tags().join(",") });
  if (shownModel) parameters.set("model", shownModel);
  return `/figures?${parameters}`;
}

function ago(seconds) {
  if (seconds < 2) return "now";
  for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "min"]]) if (seconds >= size) return `${Math.floor(seconds / size)} ${unit} ago`;
  return `${Math.floor(seconds)} s ago`;
}

function bytes(count) {
  const units = ["B", "KB", "MB", "GB", "TB"];
  let i = 0;
  while (count >= 1000 && i < units.length - 1) { count /= 1000; i += 1; }
  return `${count.toFixed(count < 10 ? 1 : 0)} ${units[i]}`;
}

// Show the figures of the stream. The rate is smoothed over polls.
function showStream(answer) {
  const when = performance.now() / 1000, rows = answer.stream.rows;
  const rate = previous && rows >= previous.rows ? (rows - previous.rows) / (when - previous.when) : null;
  const smooth = rate === null ? null : previous.rate === null ? rate : 0.6 * previous.rate + 0.4 * rate;
  previous = { rows, when, rate: smooth };

  at("rows").textContent = show(rows);
  at("rate").textContent = smooth === null ? "–" : show(Math.round(smooth));
  at("position").textContent = answer.stream.position < 0 ? "empty" : show(answer.stream.position);
  at("last").textContent = answer.health.last_rows === null ? "–" : ago(Date.now() / 1000 - answer.health.last_rows);
  at("features").textContent = show(answer.stream.features);
  at("disk").textContent = bytes(answer.health.free_bytes);
  at("refused").textContent = show(answer.figures_of_engine.refused);

  at("trouble").hidden = answer.health.reason === null;
  at("trouble").textContent = answer.health.reason === null ? "" : `The service accepts no batches. Reason: ${answer.health.reason}`;
}

// Return table cells. numbers: positions of the columns that hold numbers.
function cells(values, numbers) {
  return values.map((value, i) => element("td", { textContent: value, className: numbers.includes(i) ? "n" : i ? "" : "name" }));
}

// Return a model's accuracy with its standard error, or its R² if targets are numbers.
function score(m) {
  if (m.accuracy !== undefined) return `${share(m.accuracy)} ± ${(100 * m.error).toFixed(1)}`;
  return m.r2 === undefined ? "not measured" : `R² ${m.r2.toFixed(3)}`;
}

const baseline = (m, value) => value === undefined || value === null ? "–" : m.r2 === undefined ? share(value) : value.toFixed(3);

// Show the sentence at the top about the best model.
function showBest(answer) {
  const leader = answer.best, m = leader && answer.models[leader.models[0]];
  const weak = Object.entries(answer.models).filter(([, m]) => m.weakness).map(([name, m]) => `${name} is ${m.weakness}.`);
  at("best").hidden = !Object.keys(answer.models).length;
  if (!m || !m.tested) {
    at("best").textContent = weak.join(" ") || "No model has been tested yet. Rows with a target are tested before they are learned.";
    return;
  }

  const is = leader.models.length === 1 ? "is best" : "are best, within two standard errors";
  const since = new Date(1000 * leader.since).toISOString().slice(0, 16).replace("T", " ");
  at("best").textContent = `${leader.models.join(" and ")} ${is}: ${m.r2 === undefined ? "accuracy " : ""}${score(m)} on ${show(m.tested)} `
    + `rows, tested ${ago(Date.now() / 1000 - m.tested_at)}; since ${since} UTC. ${show(m.rows)} rows learned, ${show(m.lag)} batches behind. ${weak.join(" ")}`;
}

// Sort models by score, the best first. Models that were not tested keep their order at the end.
const rank = m => m.accuracy ?? m.r2 ?? -Infinity;
const ranked = models => Object.entries(models).sort(([, a], [, b]) => rank(b) - rank(a) || 0);

function showModels(answer) {
  const all = ranked(answer.models);
  at("models").tBodies[0].replaceChildren(...all.flatMap(([name, m]) => {
    const values = [name, score(m), baseline(m, m.baseline), baseline(m, m.most_frequent), m.estimator, m.state.replace("_", " "), show(m.rows), show(m.lag),
      show(m.stale_rows), show(m.version), m.components, m.solution || "–"];
    const row = element("tr", { className: m.state }, ...cells(values, [1, 2, 3, 6, 7, 8, 9, 10]));
    const failure = m.failure ?? m.publish_failure;
    const notes = [];
    if (m.release) notes.push(["why", `publishes the release ${m.release}, ${show(m.stale_rows)} rows behind`]);
    const what = m.failure ? "failed" : "cannot be published";
    if (failure) notes.push(["failed why", `${what} at position ${failure.position} (${failure.code}): ${failure.message}`]);
    return [row, ...notes.map(([className, textContent]) => element("tr", { className }, element("td", { colSpan: 12, textContent })))];
  }));

  const names = all.map(([name]) => name), options = [...at("model").options].map(option => option.value);
  if (names.join("\n") !== options.join("\n")) {
    at("model").replaceChildren(...names.map(name => element("option", { value: name, textContent: name })));
  }

  // The best model is shown until the reader picks another. Once it was tested it stays shown, even if
  // another becomes the best.
  if (!names.includes(shownModel) || !(picked || answer.models[shownModel].tested)) shownModel = names[0] || "";
  if (shownModel && at("model").value !== shownModel) at("model").value = shownModel;

  for (const place of document.querySelectorAll(".chosen")) place.textContent = shownModel;
  at("models-part").hidden = at("look").hidden = at("progress-part").hidden = at("of-model").hidden = !names.length;
  at("begin").hidden = names.length > 0;
  at("component").max = (answer.models[shownModel] || {}).components || 1;
  at("refine").hidden = !(answer.models[shownModel] || {}).refines;
}

// Return a label as the service writes it in a list of labels. Booleans are True and False.
const named = label => label === true ? "True" : label === false ? "False" : String(label);

function showClasses(answer) {
  const total = answer.counts.reduce((sum, [, rows]) => sum + rows, 0);
  const tests = (answer.models[shownModel] || {}).confusion, labels = tests ? tests.labels.map(named) : [];
  const right = label => { const i = labels.indexOf(label); return i < 0 ? null : tests.counts[i][i] / tests.rows[i]; };

  const { class_rows: learned = [], classes_waiting: waiting = [] } = answer.models[shownModel] || {};
  const known = new Map(learned.concat(waiting)), had = label => known.has(label) ? show(known.get(label)) : "–";
  at("classes").tBodies[0].replaceChildren(...answer.counts.map(([label, rows]) =>
    element("tr", {}, ...cells([label, show(rows), share(rows / total), share(right(label)), had(label)], [1, 2, 3, 4]))));

  at("waiting").hidden = !waiting.length;
  at("waiting").textContent = `Labels with too few rows to be classes: ${waiting.map(([label, rows]) =>
    `${label.length > 40 ? `${label.slice(0, 40)}…` : label} (${show(rows)})`).join(", ")}.`;
  at("classes-part").hidden = false;
  at("classes-title").textContent = answer.counts.length ? "Labels of these rows" : "These rows have no labels";
}

// Show how sure the model's components are, and make room for the figures that the model has.
function showUncertainty(answer) {
  at("sentences").hidden = !answer.sentences.length;
  at("sentences").textContent = answer.sentences.join(" ");
  at("regularisation").closest("figure").hidden = !answer.figures.regularisation;
}

function showJobs(answer) {
  at("jobs-part").hidden = !answer.jobs.length;
  at("jobs").replaceChildren(...answer.jobs.reverse().map(job => {
    const p = job.progress, parts = [element("span", { textContent: `${job.kind} of ${job.model}: ${job.state}` })];
    if (job.state === "running" && p.total_rows) {
      const value = Math.min(1, (p.rows || 0) / p.total_rows);
      parts.push(element("progress", { max: 1, value, ariaLabel: `${job.kind} of ${job.model}` }));
      parts.push(element("span", { textContent: `pass ${p.pass}, ${Math.round(100 * value)} %` }));
    }
    if (p.residual !== undefined) parts.push(element("span", { textContent: `residual ${p.residual.toPrecision(2)}` }));
    if (p.note) parts.push(element("span", { textContent: p.note }));
    if (job.error) parts.push(element("span", { className: "notice", textContent: job.error.message }));

    if (answer.may_write && (job.state === "running" || job.state === "waiting")) {
      const stop = element("button", { type: "button", textContent: "Cancel", ariaLabel: `Cancel ${job.kind} of ${job.model}` });
      stop.addEventListener("click", () => cancel(job.id));
      parts.push(stop);
    }
    return element("li", {}, ...parts);
  }));
}

// Show commands that create the first model of an empty service.
function showFirstSteps(answer) {
  const token = answer.guarded ? ` -H "authorization: Bearer $TOKEN"` : "", python = answer.guarded ? `, token="…"` : "";
  const url = location.origin, json = `-H 'content-type: application/json'`;
  at("curl").textContent = [
    `curl -X PUT ${url}/models/lda${token} ${json} -d '{"estimator": "lda"}'`,
    `curl -X POST ${url}/partial_fit${token} ${json} \\`,
    `     -d '{"rows": [[0.1, 0.2], [0.9, 0.4], [0.2, 0.1]], "labels": ["a", "b", "a"]}'`,
  ].join("\n");
  at("python").textContent = [
    "import stream_dr", "from sklearn.datasets import load_digits", "",
    "X, y = load_digits(return_X_y=True)", `with stream_dr.Client("${url}"${python}) as client:`,
    `    client.put_model("lda", "lda")`, "    for i in range(0, len(X), 100):", "        client.partial_fit(X[i : i + 100], y[i : i + 100])",
  ].join("\n");
}

// Poll the service once and show the answer.
async function poll() {
  const { told: progress, ...rest } = await (await ask(query())).json();
  const answer = { ...rest, ...progress };
  showStream(answer);
  showModels(answer);
  showBest(answer);
  showJobs(answer);
  showUncertainty(answer);

  at("forms").hidden = !answer.may_write;
  at("begin-form").hidden = !answer.may_write;
  if (!at("begin").hidden) showFirstSteps(answer);
  if (Object.keys(answer.models).length) showClasses(answer);
  for (const [id, figure] of Object.entries(answer.figures)) if (!at(id).closest("section").hidden) figures.show(id, figure);
  showConnection("live", "up");
}

function showConnection(text, kind) {
  if (at("link").textContent !== text) at("link").textContent = text;
  at("link").className = kind;
}

// Wait for so many milliseconds, or until `wake` is called.
function sleep(time) {
  return new Promise(done => { wake = done; setTimeout(done, time); });
}

// Ask the reader for a token and hide the page meanwhile.
function askForToken(why) {
  at("page").hidden = true;
  if (why) at("ask-why").textContent = why;
  if (!at("ask").open) at("ask").showModal();
  return new Promise(done => at("ask-form").addEventListener("submit", event => {
    event.preventDefault();
    token.set(at("token").value);
    at("token").value = "";
    at("ask").close();
    at("page").hidden = false;
    done();
  }, { once: true }));
}

async function run() {
  for (;;) {
    try {
      await poll();
      await sleep(document.hidden ? 60000 : POLL_INTERVAL);
    } catch (error) {
      if (error.status === 401) await askForToken(token.get() ? "This token is wrong. Ask the operator of this service for one." : "");
      else {
        showConnection(error.status ? error.message : "not connected, trying again …", "down");
        if (!error.status && !(error instanceof TypeError) && error.name !== "TimeoutError") console.error(error);
        await sleep(RETRY_DELAY);
      }
    }
  }
}

// Show this model if one is given, and poll at once.
function choose(model) {
  if (model) {
    shownModel = model;
    picked = true;
  }
  wake();
}

at("model").addEventListener("change", event => choose(event.target.value));
for (const id of ["count", "dimensions", "component"]) at(id).addEventListener("change", () => choose());
document.addEventListener("visibilitychange", () => { if (!document.hidden) wake(); });
install(chosen, choose);
run();

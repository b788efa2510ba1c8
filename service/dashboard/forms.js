// Forms for what can be changed; the parameters are the registry's own.

import { ask, write } from "./api.js";

const at = id => document.getElementById(id);
let known = {};

export function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

function say(text, bad = false) {
  at("said").textContent = text;
  at("said").className = bad ? "bad" : "";
}

function field(param) {
  const id = `param-${param.name}`;
  const shown = param.default === null ? "none" : JSON.stringify(param.default);
  let input;
  if (param.kind === "choice" || param.kind === "boolean") {
    const choices = param.kind === "boolean" ? [true, false] : param.choices;
    input = element("select", { id }, ...choices.map(choice => element("option", {
      value: JSON.stringify(choice), textContent: String(choice), selected: choice === param.default,
    })));
  } else if (param.kind === "json") {
    input = element("input", { id, placeholder: shown });
  } else {
    input = element("input", { id, type: "number", step: param.kind === "integer" ? "1" : "any", placeholder: shown });
  }
  input.dataset.param = param.name;
  input.dataset.given = JSON.stringify(param.default);
  return element("label", { htmlFor: id }, param.name, input);
}

function parameters() {
  const given = {};
  for (const input of at("params").querySelectorAll("[data-param]")) {
    if (input.value === "" || input.value === input.dataset.given) continue;
    try { given[input.dataset.param] = JSON.parse(input.value); }
    catch { throw new Error(`${input.dataset.param} is not JSON: ${input.value}`); }
  }
  return given;
}

function showParameters() {
  const form = known[at("make").estimator.value];
  at("about").textContent = form.about;
  at("params").replaceChildren(...form.params.map(field));
}

async function done(what, work, after) {
  try { await work(); say(what); after(); }
  catch (error) { say(error.message, true); }
}

// chosen: gives the name of the model that is shown. after: called with a model's name once something was changed.
export async function install(chosen, after) {
  known = await (await ask("/dashboard/forms.json")).json();
  const make = at("make");
  make.estimator.append(...Object.keys(known).map(key => element("option", { value: key, textContent: key })));
  make.estimator.value = "lda";
  make.estimator.addEventListener("change", showParameters);
  showParameters();
  const on = (id, act) => at(id).addEventListener("submit", event => { event.preventDefault(); act(event.target); });
  on("make", form => done(`Model ${form.elements.name.value} is made.`, () => write("PUT", `/models/${form.elements.name.value}`, {
    estimator: form.estimator.value, params: parameters(), from: form.elements.from.value,
  }), () => after(form.elements.name.value)));
  on("refine", form => done("Refining has begun.", () => write("POST", `/models/${chosen()}/refine`, {
    tol: Number(form.tol.value), max_passes: Number(form.max_passes.value),
  }), () => after()));
  on("snapshot", () => done("A snapshot is being written.", () => write("POST", `/models/${chosen()}/snapshot`), () => after()));
  on("delete", () => at("sure").showModal());
  at("keep").addEventListener("click", () => at("sure").close());
  on("sure-form", () => {
    at("sure").close();
    const name = chosen();
    done(`Model ${name} is deleted.`, () => write("DELETE", `/models/${name}`), () => after());
  });
}

export const cancel = id => done("The job will stop.", () => write("DELETE", `/jobs/${id}`), () => {});

// Forms that create, refine, snapshot and delete models.

import { ask, write } from "./api.js";

const at = id => document.getElementById(id);

// Descriptions of the estimators' parameters, by estimator key.
let estimators = {};

export function element(name, properties = {}, ...children) {
  const created = Object.assign(document.createElement(name), properties);
  created.append(...children);
  return created;
}

function say(text, bad = false) {
  at("said").textContent = text;
  at("said").className = bad ? "bad" : "";
}

// Return a labelled input for one parameter. Its value is JSON or a text.
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
  input.dataset.default = JSON.stringify(param.default);
  return element("label", { htmlFor: id }, param.name, input);
}

// Return the parameters that differ from their defaults.
function parameters() {
  const values = {};
  for (const input of at("params").querySelectorAll("[data-param]")) {
    if (input.value === "" || input.value === input.dataset.default) continue;
    // A word without quotes, such as cv, is a text.
    try { values[input.dataset.param] = JSON.parse(input.value); }
    catch { values[input.dataset.param] = input.value; }
  }
  return values;
}

function showParameters() {
  const form = estimators[at("make").estimator.value];
  at("about").textContent = form.about;
  at("params").replaceChildren(...form.params.map(field));
}

// Do the work, then show `message` and call `after`. If the work fails, show its error.
async function perform(message, work, after) {
  try { await work(); say(message); after(); }
  catch (error) { say(error.message, true); }
}

// Fill the forms and connect them to the service.
// chosen: returns the name of the model that is shown.
// after: called after a change, with the name of the model to show if there is a new one.
export async function install(chosen, after) {
  estimators = await (await ask("/dashboard/forms.json")).json();
  const make = at("make");
  make.estimator.append(...Object.keys(estimators).map(key => element("option", { value: key, textContent: key })));
  make.estimator.value = "lda";
  make.estimator.addEventListener("change", showParameters);
  showParameters();

  const on = (id, act) => at(id).addEventListener("submit", event => { event.preventDefault(); act(event.target); });
  on("make", form => perform(`The model ${form.elements.name.value} is created.`, () => write("PUT", `/models/${form.elements.name.value}`, {
    estimator: form.estimator.value, params: parameters(), from: form.elements.from.value,
  }), () => after(form.elements.name.value)));
  on("refine", form => perform("The refine has started.", () => write("POST", `/models/${chosen()}/refine`, {
    tol: Number(form.tol.value), max_passes: Number(form.max_passes.value),
  }), () => after()));
  on("snapshot", () => perform("The snapshot is being written.", () => write("POST", `/models/${chosen()}/snapshot`), () => after()));

  on("delete", () => at("sure").showModal());
  at("keep").addEventListener("click", () => at("sure").close());
  on("sure-form", () => {
    at("sure").close();
    const name = chosen();
    perform(`The model ${name} is deleted.`, () => write("DELETE", `/models/${name}`), () => after());
  });
}

export const cancel = id => perform("The job will stop soon.", () => write("DELETE", `/jobs/${id}`), () => {});

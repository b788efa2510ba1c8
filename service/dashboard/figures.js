// Plots of the service's figures, in the page's colours.
/* global Plotly */

// The figures that are shown, by element id: {tag, figure}.
const shown = new Map();
const dark = matchMedia("(prefers-color-scheme: dark)");
const webgl = !!document.createElement("canvas").getContext("webgl");

// Tags of the figures that are shown, so that the service sends only others.
export const tags = () => [...shown.values()].map(({ tag }) => tag);

// Show a figure in an element. An answer without one means that the shown figure is current.
export function show(id, answer) {
  if (!answer.figure) return;
  shown.set(id, { tag: answer.tag, figure: answer.figure });
  draw(id);
}

function draw(id) {
  const { figure } = shown.get(id);
  const element = document.getElementById(id);
  const narrow = crowded(element);
  const data = figure.data.map(t => ({ ...t, ...(!webgl && t.type === "scattergl" && { type: "scatter" }),
    ...(t.type === "heatmap" && { textfont: { color: getComputedStyle(document.documentElement).getPropertyValue("--text").trim() } }),
    ...(narrow && t.name && { name: short(t.name) }) }));
  Plotly.react(element, data, layout(figure.layout, element), { displaylogo: false, responsive: true });
}

// Return true if a legend of many classes has no room for whole names.
const crowded = element => element.id === "projection" && element.clientWidth < 420;

// Shorten a name for a narrow legend. The name is HTML, so an entity counts as one character.
function short(name) {
  const characters = name.match(/&\w+;|[^]/gu);
  return characters.length > 18 ? `${characters.slice(0, 17).join("")}…` : name;
}

// Adapt a figure's layout to the page's colours and the element's width.
function layout(original, element) {
  const style = getComputedStyle(document.documentElement);
  const [text, grid, line] = ["--text", "--grid", "--line"].map(name => style.getPropertyValue(name).trim());
  const axis = { gridcolor: grid, zerolinecolor: line, linecolor: line, automargin: true };
  const scene = Object.fromEntries(["xaxis", "yaxis", "zaxis"].map(name => [name, { ...axis, backgroundcolor: "rgba(0,0,0,0)" }]));

  const outlined = [{ marker: { line: { color: text } } }];
  const template = { layout: { xaxis: axis, yaxis: axis, scene }, data: { scatter: outlined, scattergl: outlined, scatter3d: outlined } };

  const narrow = element.clientWidth < 600;
  const below = { orientation: "h", x: 0, y: 0, yref: "container", yanchor: "bottom", font: { size: 10 },
    ...(crowded(element) && { entrywidth: 0.48, entrywidthmode: "fraction" }) };
  return {
    ...original, template, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { ...original.font, color: text, size: narrow ? 11 : 13 },
    margin: narrow ? { l: 45, r: 10, t: 50, b: 40 } : original.margin,
    title: { ...original.title, font: { size: narrow ? 12 : 15 } },
    legend: { ...original.legend, ...(narrow ? below : {}) },
  };
}

export function drawAgain() { for (const id of shown.keys()) draw(id); }

dark.addEventListener("change", drawAgain);

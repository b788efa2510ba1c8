// Figures as the service draws them, in the page's colours.
/* global Plotly */

const held = new Map();  // id → {tag, figure}
const dark = matchMedia("(prefers-color-scheme: dark)");
const webgl = !!document.createElement("canvas").getContext("webgl");

export const tags = () => [...held.values()].map(({ tag }) => tag);

export function show(id, told) {
  if (!told.figure) return;
  held.set(id, { tag: told.tag, figure: told.figure });
  draw(id);
}

function draw(id) {
  const { figure } = held.get(id);
  const element = document.getElementById(id);
  const narrow = crowded(element);
  const data = figure.data.map(t => ({ ...t, ...(!webgl && t.type === "scattergl" && { type: "scatter" }),
    ...(t.type === "heatmap" && { textfont: { color: getComputedStyle(document.documentElement).getPropertyValue("--text").trim() } }),
    ...(narrow && t.name && { name: short(t.name) }) }));
  Plotly.react(element, data, layout(figure.layout, element), { displaylogo: false, responsive: true });
}

// Whether a legend of many classes has no room for whole names.
const crowded = element => element.id === "projection" && element.clientWidth < 420;

// A name, which is markup, as a narrow legend has room for it.
function short(name) {
  const characters = name.match(/&\w+;|[^]/gu);
  return characters.length > 18 ? `${characters.slice(0, 17).join("")}…` : name;
}

function layout(given, element) {
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
    ...given, template, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { ...given.font, color: text, size: narrow ? 11 : 13 },
    margin: narrow ? { l: 45, r: 10, t: 50, b: 40 } : given.margin,
    title: { ...given.title, font: { size: narrow ? 12 : 15 } },
    legend: { ...given.legend, ...(narrow ? below : {}) },
  };
}

export function drawAgain() { for (const id of held.keys()) draw(id); }

dark.addEventListener("change", drawAgain);

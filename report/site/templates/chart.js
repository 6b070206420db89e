// The chart of a sweep: a point for every case, by operator and dtype. Chart.js stands in a file of its own.

// Markers by their names in matplotlib, around 0 with a radius of 1.
const MARKERS = {
  o: "M1 0A1 1 0 1 1-1 0A1 1 0 1 1 1 0z",
  s: "M-.85-.85h1.7v1.7h-1.7z",
  D: "M0-1.15L1.15 0 0 1.15-1.15 0z",
  d: "M0-1.2L.7 0 0 1.2-.7 0z",
  "^": "M0-1.1L1.1 .9H-1.1z",
  v: "M0 1.1L1.1-.9H-1.1z",
  "<": "M-1.1 0L.9-1.1V1.1z",
  ">": "M1.1 0L-.9-1.1V1.1z",
  P: "M-.38-1.1h.76v.72h.72v.76h-.72v.72h-.76v-.72h-.72v-.76h.72z",
  X: "M0-.5L.55-1.05 1.05-.55 .5 0 1.05 .55 .55 1.05 0 .5-.55 1.05-1.05 .55-.5 0-1.05-.55-.55-1.05z",
  "*": "M0-1.3L.3-.4 1.24-.4 .48 .16 .76 1.05 0 .5-.76 1.05-.48 .16-1.24-.4-.3-.4z",
  p: "M0-1.1L1.05-.34 .65 .89H-.65L-1.05-.34z",
  h: "M0-1.1L.95-.55V.55L0 1.1-.95 .55V-.55z",
  H: "M1.1 0L.55 .95H-.55L-1.1 0-.55-.95H.55z",
  8: "M.41-1L1-.41V.41L.41 1H-.41L-1 .41V-.41L-.41-1z",
};
const PATHS = Object.fromEntries(Object.entries(MARKERS).map(([marker, path]) => [marker, new Path2D(path)]));
// Which part of a marker has colour, by the hatch that bars have: a hatch itself is too fine for a point.
const WHOLE = [-2, -2, 4, 4];
const FILLS = {
  "": WHOLE,
  "////": [0, 0, 0, 0],
  "\\\\\\\\": [-2, -2, 2, 4],
  xxxx: [0, -2, 2, 4],
  "----": [-2, 0, 4, 2],
  "||||": [-2, -2, 4, 2],
};
const RADIUS = 4.5, SMALL_RADIUS = 3, LONGEST_NAME = 17, MOST_LINES = 12, NARROW = 600;

function drawMarker(context, { marker, hatch, backgroundColor }, x, y, radius) {
  const path = PATHS[marker] ?? PATHS.o;
  context.save();
  context.translate(x, y);
  context.scale(radius, radius);
  context.lineWidth = 1.3 / radius;
  context.strokeStyle = backgroundColor;
  context.stroke(path);
  context.clip(path);
  // White lies over what is behind a marker, so that an empty half stays empty.
  for (const [fill, part] of [["#fff", WHOLE], [backgroundColor, FILLS[hatch] ?? WHOLE]]) {
    context.fillStyle = fill;
    context.globalAlpha = fill === backgroundColor ? 1 : 0.6;
    context.fillRect(...part);
  }
  context.restore();
}

// Chart.js has fewer markers than matplotlib, and cuts points off at the edge of the axes.
const markers = {
  id: "markers",
  beforeDatasetDraw(chart, { meta }) {
    for (const { x, y, options } of meta.data) drawMarker(chart.ctx, chart.data.datasets[meta.index], x, y, options.radius);
    return false;
  },
};

// The lines of a logarithmic axis, of which the outer two are its ends: 1, 2 and 5 times powers of ten. Of many lines,
// those within the ends are powers of ten alone.
function linesOf(values) {
  if (!values.length) return [1, 10];
  const low = Math.min(...values), high = Math.max(...values), every = [];
  for (let power = Math.floor(Math.log10(low)) - 1; power <= Math.log10(high) + 1; power++) {
    every.push(...[1, 2, 5].map(step => Number(`${step}e${power}`)));
  }
  const first = every.filter(line => line <= low).length - 1, last = every.findIndex(line => line >= high);
  const lines = first === last ? every.slice(first - 1, last + 2) : every.slice(first, last + 1);
  if (lines.length <= MOST_LINES) return lines;
  return lines.filter((line, at) => at === 0 || at === lines.length - 1 || every.indexOf(line) % 3 === 0);
}

// A long name loses its middle: both ends tell matrices apart.
function nameOf([matrix, width]) {
  const name = matrix.split("/").pop(), half = LONGEST_NAME >> 1;
  const short = name.length > LONGEST_NAME ? `${name.slice(0, half)}…${name.slice(-half)}` : name;
  return `${short}, J = ${width.toLocaleString("en")}`;
}

for (const place of document.querySelectorAll(".chart")) {
  const { series, panels } = JSON.parse(place.querySelector("script").textContent);
  const [panel, value] = place.querySelectorAll("select");
  const legend = place.querySelector(".legend");
  const style = getComputedStyle(legend);
  const quiet = style.getPropertyValue("--quiet").trim(), line = style.getPropertyValue("--line").trim();
  const digits = number => number === null ? "unknown" : number.toLocaleString("en", { maximumSignificantDigits: 4 });
  const hidden = new Set();
  let cases = [], lines = [];
  panels.forEach(({ name }, number) => panel.add(new Option(name, number)));
  place.hidden = false;
  const title = text => ({ display: true, text, color: quiet });
  const chart = new Chart(place.querySelector("canvas"), {
    type: "scatter",
    data: { datasets: [] },
    plugins: [markers],
    options: {
      animation: false,
      maintainAspectRatio: false,
      layout: { padding: { top: 2 * RADIUS, right: 2 * RADIUS } },
      interaction: { mode: "nearest", intersect: true },
      elements: { point: { hitRadius: 4 } },
      scales: {
        x: {
          title: title("cases, by matrix and J"),
          grid: { display: false },
          ticks: {
            color: quiet, precision: 0, includeBounds: false, maxRotation: 60, autoSkipPadding: 8,
            // Flat names would take half of a telephone's width beside the axis.
            minRotation: ({ chart }) => chart.width < NARROW ? 60 : 0,
            callback: at => cases[at] ? nameOf(cases[at]) : "",
          },
        },
        y: {
          type: "logarithmic",
          title: title(""),
          grid: { color: line },
          afterBuildTicks: axis => { axis.ticks = lines.map(value => ({ value })); },
          ticks: { color: quiet, autoSkip: false, callback: number => `${digits(number)}${value.value === "3" ? "×" : ""}` },
        },
      },
      plugins: {
        legend: { display: false },
        tooltip: {
          callbacks: {
            title: ([item]) => `${cases[item.parsed.x][0]}, J = ${cases[item.parsed.x][1].toLocaleString("en")}, ${panels[panel.value].name}`,
            label: ({ dataset, raw }) => `${dataset.label}: ${digits(raw.us)} µs, speed-up ${digits(raw.speedup)}${raw.speedup === null ? "" : "×"}`,
          },
        },
      },
    },
  });

  const iconOf = dataset => {
    const icon = document.createElement("canvas"), pixels = 14 * Math.ceil(devicePixelRatio);
    icon.width = icon.height = pixels;
    const context = icon.getContext("2d");
    context.scale(pixels / 14, pixels / 14);
    drawMarker(context, dataset, 7, 7, RADIUS);
    return icon;
  };
  const draw = () => {
    const of = panels[panel.value], which = Number(value.value);
    cases = of.cases;
    lines = linesOf(of.points.map(point => point[which]).filter(number => number !== null));
    chart.data.datasets = series.map(({ label, colour, marker, hatch }, number) => ({
      label,
      hidden: hidden.has(label),
      backgroundColor: colour,
      marker,
      hatch,
      data: of.points
        .filter(point => point[0] === number && point[which] !== null)
        .map(point => ({ x: point[1], y: point[which], us: point[2], speedup: point[3] })),
    })).filter(({ data }) => data.length);
    const radius = of.points.length > 2 * chart.width ? SMALL_RADIUS : RADIUS;
    Object.assign(chart.options.elements.point, { radius, hoverRadius: 1.5 * radius });
    Object.assign(chart.options.scales.x, { min: -0.5, max: cases.length - 0.5 });
    Object.assign(chart.options.scales.y, { min: lines[0], max: lines.at(-1) });
    chart.options.scales.y.title.text = value.selectedOptions[0].text;
    legend.replaceChildren(...chart.data.datasets.map(dataset => {
      const button = document.createElement("button");
      button.append(iconOf(dataset), dataset.label);
      button.setAttribute("aria-pressed", !dataset.hidden);
      button.addEventListener("click", () => {
        dataset.hidden = !dataset.hidden;
        hidden[dataset.hidden ? "add" : "delete"](dataset.label);
        button.setAttribute("aria-pressed", !dataset.hidden);
        chart.update();
      });
      return button;
    }));
    chart.update();
  };
  panel.addEventListener("change", draw);
  value.addEventListener("change", draw);
  draw();
}

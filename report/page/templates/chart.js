// The chart of a sweep: a point for every case, by operator and dtype. Chart.js stands in a file of its own.
for (const place of document.querySelectorAll(".chart")) {
  const { series, panels } = JSON.parse(place.querySelector("script").textContent);
  const [panel, value] = place.querySelectorAll("select");
  const legend = place.querySelector(".legend");
  const colour = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const digits = number => number === null ? "unknown" : number.toLocaleString("en", { maximumSignificantDigits: 4 });
  const hidden = new Set();
  let cases = [];
  panels.forEach(({ name }, number) => panel.add(new Option(name, number)));
  place.hidden = false;
  const title = text => ({ display: true, text });
  const chart = new Chart(place.querySelector("canvas"), {
    type: "scatter",
    data: { datasets: [] },
    options: {
      animation: false,
      maintainAspectRatio: false,
      interaction: { mode: "nearest", intersect: true },
      elements: { point: { radius: 3.5, hoverRadius: 6, hitRadius: 4 } },
      scales: {
        x: {
          title: title("cases, by matrix and J"),
          grid: { display: false },
          ticks: { precision: 0, maxRotation: 60, autoSkipPadding: 8, callback: at => cases[at] ? cases[at][0].split("/").pop().slice(0, 18) : "" },
        },
        y: { type: "logarithmic", title: title(""), ticks: { maxTicksLimit: 8 } },
      },
      plugins: {
        legend: { display: false },
        tooltip: {
          callbacks: {
            title: ([item]) => `${cases[item.parsed.x][0]}, J = ${cases[item.parsed.x][1]}, ${panels[panel.value].name}`,
            label: ({ dataset, raw }) => `${dataset.label}: ${digits(raw.us)} µs, speed-up ${digits(raw.speedup)}${raw.speedup === null ? "" : "×"}`,
          },
        },
      },
    },
  });

  const paint = () => {
    for (const axis of Object.values(chart.options.scales)) {
      axis.ticks.color = axis.title.color = colour("--quiet");
      axis.grid = { ...axis.grid, color: colour("--line") };
    }
    // A ring keeps dark points apart from a dark page.
    chart.options.elements.point.borderColor = colour("--quiet");
    chart.update();
  };
  const draw = () => {
    const of = panels[panel.value], which = Number(value.value);
    cases = of.cases;
    chart.data.datasets = series.map(({ label, colour }, number) => ({
      label,
      hidden: hidden.has(label),
      backgroundColor: colour,
      data: of.points
        .filter(point => point[0] === number && point[which] !== null)
        .map(point => ({ x: point[1], y: point[which], us: point[2], speedup: point[3] })),
    })).filter(({ data }) => data.length);
    Object.assign(chart.options.scales.x, { min: -0.5, max: cases.length - 0.5 });
    chart.options.scales.y.title.text = value.selectedOptions[0].text;
    legend.replaceChildren(...chart.data.datasets.map(dataset => {
      const button = document.createElement("button"), dot = document.createElement("i");
      dot.style.background = dataset.backgroundColor;
      button.append(dot, dataset.label);
      button.setAttribute("aria-pressed", !dataset.hidden);
      button.addEventListener("click", () => {
        dataset.hidden = !dataset.hidden;
        hidden[dataset.hidden ? "add" : "delete"](dataset.label);
        button.setAttribute("aria-pressed", !dataset.hidden);
        chart.update();
      });
      return button;
    }));
    paint();
  };
  panel.addEventListener("change", draw);
  value.addEventListener("change", draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
  draw();
}
